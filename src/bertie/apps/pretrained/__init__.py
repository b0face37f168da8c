"""What a pre-trained model says and writes: masked words, wrong words, perplexity, the next sentence, text."""
