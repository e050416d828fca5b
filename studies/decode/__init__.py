"""Decode GPT-2 one token at a time, from Hugging Face's eager loop to the floor: see kernels/decode/README.md."""
