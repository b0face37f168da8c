"""What a pre-trained model says of texts: how probable they are, and whether one follows another."""
