"""Next-sentence prediction: whether one text follows another."""
