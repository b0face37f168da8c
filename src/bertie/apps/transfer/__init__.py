"""Models of the Hugging Face Hub, and in other names and formats."""
