"""Evaluation of a retriever: queries, then scores of the whole gallery. a: hits are read after each batch, b: never."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, C, GALLERY, BATCHES = 32, 512, 1_500_000, 4


def build(form):
    gallery = F.normalize(torch.randn(GALLERY, C, device="cuda", dtype=torch.bfloat16), dim=1)
    project = nn.Sequential(nn.Linear(C, C), nn.LayerNorm(C), nn.ReLU(), nn.Linear(C, C)).cuda().bfloat16()
    images, words = (torch.randn(BATCHES, B, C, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    truth = torch.randint(GALLERY, (BATCHES, B), device="cuda")

    @torch.no_grad()
    def step(i):
        hits = 0
        for image, word, target in zip(images, words, truth, strict=True):
            parts = [
                F.normalize(project(part.float().clamp(-4, 4).to(torch.bfloat16)), dim=1) for part in (image, word)
            ]
            query = F.normalize(0.5 * parts[0] + 0.5 * parts[1], dim=1)
            found = ((query @ gallery.t()).argmax(1) == target).sum()
            hits += found.item() if form == "a" else found
        return hits

    return step
