"""What a model looks at: attributions of one prediction to the words of its text, and how faithful they are."""
