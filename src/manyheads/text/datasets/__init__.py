"""Known corpora by name: the catalog of their URLs, and downloads that resume."""
