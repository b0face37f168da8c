"""Data, from documents to batches: sources, corpus, shards, order, pairing, masking, collating."""
