"""GPT-2 one token at a time, from Hugging Face's eager loop to the floor: chapter in kernels/decode/README.md."""
