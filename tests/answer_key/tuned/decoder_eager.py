"""One token of a decoder with a static cache, batch 1. a: eager, b: one CUDA graph."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

C, H, T, L = 768, 12, 256, 6


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        self.register_buffer("cache", torch.zeros(2, 1, H, T, C // H))

    def forward(self, x, at):
        q, k, v = self.qkv(self.norm1(x)).view(1, 1, 3, H, C // H).permute(2, 0, 3, 1, 4)
        self.cache[0].index_copy_(2, at, k)
        self.cache[1].index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, self.cache[0], self.cache[1])
        x = x + self.out(y.reshape(1, 1, C))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def build(form):
    model = nn.ModuleList(Layer() for _ in range(L)).cuda().half()
    x, at = torch.randn(1, 1, C, device="cuda", dtype=torch.half), torch.zeros(1, dtype=torch.long, device="cuda")

    @torch.no_grad()
    def token():
        y = x
        for layer in model:
            y = layer(y, at)
        return y

    if form == "a":
        return lambda i: token()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        token()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token()
    return lambda i: graph.replay()
