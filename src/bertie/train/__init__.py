"""The training loop of pre-training and fine-tuning: fit, optimizers, schedule, checkpoints."""
