"""The study of a training step of GPT-2: its layers, forward and backward, its optimiser, and its memory."""
