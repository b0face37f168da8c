"""Smaller models: weights in few bits, fewer layers, heads and neurons, and students that learn from a teacher."""
