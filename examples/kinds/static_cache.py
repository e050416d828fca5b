"""Hugging Face's generate() with a static cache, which compiles the decode step: random weights, a small Llama.

Run        python examples/kinds/static_cache.py [--tiny]
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TINY, DEVICE = "--tiny" in sys.argv, "cuda" if torch.cuda.is_available() else "cpu"
LAYERS, WIDTH, HEADS, PROMPT, NEW = (2, 64, 4, 8, 4) if TINY else (4, 1024, 16, 128, 24)

config = LlamaConfig(
    vocab_size=1024, hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=LAYERS,
    num_attention_heads=HEADS, num_key_value_heads=HEADS // 2, max_position_embeddings=512, pad_token_id=0,
    bos_token_id=1, eos_token_id=None,
)  # fmt: skip
model = LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()
prompt = torch.arange(PROMPT, device=DEVICE)[None] + 2
for _ in range(2):  # the first call compiles
    tokens = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW, do_sample=False,
        cache_implementation="static",
    )  # fmt: skip
print(tokens.shape[1] - PROMPT, "tokens")
