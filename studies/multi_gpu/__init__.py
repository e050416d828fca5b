"""Predict and measure GPT-2 on several GPUs of one host: data parallel, tensor parallel, and a common mistake."""
