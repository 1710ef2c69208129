"""Text before it is tokens: where it comes from, how it is read, cleaned and cut."""
