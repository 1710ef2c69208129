"""Attention of one sentence as a web page, as figures and as numbers (Figures 3 to 5)."""
