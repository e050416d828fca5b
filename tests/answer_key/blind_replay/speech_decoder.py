"""A token of a speech model's decoder with self- and cross-attention. a: eager, b: a graphed callable."""

import torch
from torch import nn

C, H, L, S, T = 512, 8, 4, 1500, 64


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.MultiheadAttention(C, H, batch_first=True)
        self.cross = nn.MultiheadAttention(C, H, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(C) for _ in range(3))
        self.feed = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))

    def forward(self, x, past, sound):
        y = self.norms[0](x)
        x = x + self.own(y, past, past, need_weights=False)[0]
        x = x + self.cross(self.norms[1](x), sound, sound, need_weights=False)[0]
        return x + self.feed(self.norms[2](x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(L)), nn.Linear(C, 8000)

    def forward(self, x, past, sound):
        for layer in self.layers:
            x = layer(x, past, sound)
        return self.head(x)


def build(form):
    model = Decoder().cuda().half().requires_grad_(False)
    x, past, sound = (torch.randn(1, n, C, device="cuda", dtype=torch.half) for n in (1, T, S))
    run = torch.cuda.make_graphed_callables(model, (x, past, sound)) if form == "b" else model

    def step(i):
        return run(x, past, sound).argmax(-1)

    return step
