"""Models of the Hugging Face Hub and of checkpoints, and in other names and formats."""
