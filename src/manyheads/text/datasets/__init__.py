"""Known corpora by name: the table of their addresses, downloads that go on where they broke off."""
