"""Doors out of the house, and one in: CTranslate2, ONNX, Hugging Face."""
