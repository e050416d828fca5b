"""Compare our attention inside Hugging Face models with theirs: tokens per second and latency of a token."""
