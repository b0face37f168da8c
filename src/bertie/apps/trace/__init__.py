"""One text through a masked language model, with the shape of every array."""
