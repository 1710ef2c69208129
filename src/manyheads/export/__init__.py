"""Conversion to and from other formats: CTranslate2, ONNX, Hugging Face."""
