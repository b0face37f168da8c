"""Search in one's own documents: passages, an index, ranked results, and answers marked in them."""
