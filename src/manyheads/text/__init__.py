"""Text: the built-in corpus and the three grammars that write it."""
