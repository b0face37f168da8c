"""Fine-tuning tasks: one file and one row each."""
