"""The native encoder: an encoder like BERT or ModernBERT in C++, in float32, bf16 or int8, on packed sequences."""
