"""Our attention inside Hugging Face models, beside theirs: tokens a second and latency of a token."""
