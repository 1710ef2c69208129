"""Models that have a name: those that are installed with the package, and those in a folder of the user's."""
