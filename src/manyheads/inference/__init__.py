"""What runs a model: torch, or CTranslate2. Both answer to `engine.Engine`."""
