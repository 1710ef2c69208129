"""The translation memory: corrections of translations, and which of them a text matches."""
