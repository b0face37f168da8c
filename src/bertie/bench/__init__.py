"""The benchmark programs behind every performance claim."""
