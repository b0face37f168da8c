"""What the layers of a model know: probes, and vectors of a word in different texts."""
