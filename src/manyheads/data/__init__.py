"""From subwords to batches: token arrays on disk, and the order they are read in."""
