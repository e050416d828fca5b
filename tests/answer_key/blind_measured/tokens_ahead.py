"""A classifier of texts: the host tokenises words while the GPU works. b: they were tokenised before (wins nothing)."""

import torch
from torch import nn

B, T, C, L = 64, 128, 1024, 24
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "kernels",
    "wait",
    "for",
    "a",
    "host",
    "that",
    "reads",
    "words",
]


def build(form):
    layers = nn.ModuleList(nn.TransformerEncoderLayer(C, 16, 4 * C, batch_first=True) for _ in range(L)).cuda()
    layers = layers.bfloat16().eval()
    embed = nn.Embedding(4096, C).cuda().bfloat16()
    ready = torch.randint(4096, (B, T)).pin_memory()

    def tokenise(i):
        return [hash((WORDS[(i + k) % len(WORDS)], k)) % 4096 for k in range(B * T)]

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("tokenise"):
            if form == "a":
                tokenise(i)
        y = embed(ready.to("cuda", non_blocking=True))
        for layer in layers:
            y = layer(y)
        return y.sum()

    return step
