"""What a pre-trained model says and writes: masked words, perplexity, the next sentence, text."""
