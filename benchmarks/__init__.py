"""The benchmark programs for every performance claim."""
