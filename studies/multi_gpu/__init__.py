"""GPT-2 on several GPUs of one host: the trap, data parallel, tensor parallel; predicted, then measured."""
