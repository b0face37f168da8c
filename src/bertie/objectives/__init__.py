"""Pre-training objectives: one file and one row each; they add up."""
