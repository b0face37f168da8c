"""The encoder, its config, its heads, and its weights on disk."""
