"""Decode steps of GPT-2 in few kernels, or in one: see README.md. Importing it needs neither torch nor a GPU."""
