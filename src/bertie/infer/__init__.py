"""What a trained model is used with: batches by token budget, answers, masks, vectors, generation."""
