"""The native encoder: a BERT-shaped encoder in C++, in float32, bf16 or int8, on packed sequences."""
