"""Changes of texts: typing errors, spaces, case, opposites, and words of one group for those of another."""
