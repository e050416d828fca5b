"""Large batches of a caption model: the host pads the next texts while the GPU works. b: they are padded already (wins nothing)."""

import torch
from torch import nn

B, C, L, TEXTS, LENGTH = 16_384, 4096, 8, 160, 200


def build(form):
    net = nn.Sequential(*(nn.Linear(C, C, bias=False) for _ in range(L))).cuda().bfloat16()
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    texts = [[(k * j) % 5000 for j in range(LENGTH - k)] for k in range(TEXTS)]
    padded = [text + [0] * (LENGTH - len(text)) for text in texts]

    def collated():
        return [[word + 1 if word else 0 for word in text] + [0] * (LENGTH - len(text)) for text in texts]

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("collate"):
            rows = collated() if form == "a" else padded
        with torch.cuda.nvtx.range("forward"):
            words = torch.tensor(rows, pin_memory=True).to("cuda", non_blocking=True)
            return net(x)[:TEXTS].sum() + words.sum()

    return step
