"""Speech features into a compiled network. a: their normalisation stays outside of torch.compile, b: it is inside."""

import torch
from torch import nn

ROWS, C = 131_072, 512
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    power = torch.rand(ROWS, C, device="cuda") + 0.1
    mean, deviation, emphasis = (torch.rand(C, device="cuda") + 0.5 for _ in range(3))
    net = nn.Sequential(nn.Linear(C, 2 * C), nn.GELU(), nn.Linear(2 * C, C), nn.GELU(), nn.Linear(C, 128))
    net = net.cuda().bfloat16()

    def features(power):
        x = torch.log(power + 1e-6)
        x = (x - mean) / deviation
        return (x * emphasis).clamp(-4, 4).bfloat16()

    if form == "a":
        made = torch.compile(net, dynamic=False)
        answer = lambda power: made(features(power))  # noqa: E731
    else:
        answer = torch.compile(lambda power: net(features(power)), dynamic=False)

    @torch.no_grad()
    def step(i):
        return answer(power)

    return step
