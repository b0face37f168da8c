"""One loop for pre-training and fine-tuning: fit, optimizer, schedule, checkpoints."""
