"""From people's files to subwords: read, clean, split into pieces."""
