"""Attention, shown: maps of one sentence as a web page, as figures, as numbers (Figures 3 to 5)."""
