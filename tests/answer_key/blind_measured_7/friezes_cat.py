"""Friezes are weighed and summed. a: six panels are put side by side by torch.cat before each sum, b: they lie so."""

import torch

ROWS, WIDTH, PANELS, TIMES = 16384, 1024, 6, 3
SAME = 1e-5


def build(form):
    torch.manual_seed(0)
    panels = [torch.rand(ROWS, WIDTH, device="cuda") for _ in range(PANELS)]
    frieze = torch.cat(panels, 1)
    weights = torch.rand(TIMES, 1, PANELS * WIDTH, device="cuda")
    weighed = torch.empty_like(frieze)

    @torch.no_grad()
    def step(i):
        sums = []
        for weight in weights:
            whole = torch.cat(panels, 1) if form == "a" else frieze
            torch.mul(whole, weight, out=weighed)
            sums.append(weighed.sum(1))
        return torch.stack(sums)

    return step
