"""Each part alone."""
