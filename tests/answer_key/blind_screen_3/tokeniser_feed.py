"""Moderation of comments. a: Python splits each comment into pieces of a vocabulary in the loop, b: that was done before."""

import random

import torch
from torch import nn

B, T, C, V = 96, 64, 512, 20000
letters = "etaoinshrdlucmfw"
rng = random.Random(1)
vocabulary = {"".join(rng.choices(letters, k=1 + at % 4)): at for at in range(V)}
comments = [" ".join("".join(rng.choices(letters, k=6)) for _ in range(20)) for _ in range(8 * B)]


def pieces(text):
    found = []
    for word in text.split():
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                if (piece := word[start:end]) in vocabulary or end == start + 1:
                    found.append(vocabulary.get(piece, 1))
                    start = end
                    break
    return (found + [0] * T)[:T]


def build(form):
    layer = nn.TransformerEncoderLayer(C, 8, 4 * C, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda().bfloat16()
    embed, head = nn.Embedding(V, C).cuda().bfloat16(), nn.Linear(C, 6).cuda().bfloat16()
    known = [torch.tensor([pieces(text) for text in comments[at : at + B]]) for at in range(0, len(comments), B)]

    @torch.no_grad()
    def step(i):
        at = i % len(known)
        ids = torch.tensor([pieces(text) for text in comments[at * B : (at + 1) * B]]) if form == "a" else known[at]
        return head(encoder(embed(ids.pin_memory().to("cuda", non_blocking=True))).mean(1)).sigmoid()

    return step
