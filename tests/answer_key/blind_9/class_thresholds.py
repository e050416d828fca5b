"""Maps of classes, cut at their means. a: the host reads each mean, b: it stays on the GPU."""

import torch

CLASSES, N = 24, 1 << 23
SAME = 1e-2


def build(form):
    torch.manual_seed(0)
    maps = list(torch.rand(CLASSES, N, device="cuda"))

    @torch.no_grad()
    def step(i):
        found = []
        for one in maps:
            mean = one.mean()
            found.append((one > (mean.item() if form == "a" else mean)).sum())
        return torch.stack(found)

    return step
