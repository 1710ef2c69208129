"""The paper's section 3: attention (3.2), positions (3.5), layers (3.1, 3.3), the whole (3.4)."""
