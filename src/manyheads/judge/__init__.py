"""Which pairs of a corpus are wrong: models learned from the corpus itself score every pair. NumPy only."""
