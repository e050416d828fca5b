"""Speech synthesis that repeats each sound for its duration. a: the host reads how many frames there are, b: it knows their number."""

import torch
from torch import nn

TEXTS, SOUNDS, C = 10, 2048, 512
SAME = 1e-2


def build(form):
    torch.manual_seed(0)
    hidden = torch.randn(TEXTS, SOUNDS, C, device="cuda", dtype=torch.bfloat16)
    durations = [torch.randint(2, 9, (SOUNDS,)) for _ in range(TEXTS)]
    totals = [int(one.sum()) for one in durations]
    durations = [one.cuda() for one in durations]
    frames = nn.Sequential(nn.Linear(C, C), nn.ReLU(), nn.Linear(C, C), nn.ReLU(), nn.Linear(C, 80)).cuda().bfloat16()

    @torch.no_grad()
    def step(i):
        spoken = []
        for text, duration, total in zip(hidden, durations, totals, strict=True):
            known = {"output_size": total} if form == "b" else {}
            spoken.append(frames(torch.repeat_interleave(text, duration, dim=0, **known)))
        return spoken[-1]

    return step
