"""Cloze questions about raw text, to practice question answering without labels."""
