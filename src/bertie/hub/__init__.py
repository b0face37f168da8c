"""Models by name: those that Python packages bring, and those of the Hugging Face Hub."""
