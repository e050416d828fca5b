"""Attention over the neighbours in a small citation graph. a: eager, b: a CUDA graph."""

import torch
from torch import nn

NODES, EDGES, C, L = 2708, 10556, 128, 6


def build(form):
    layers = nn.ModuleList(nn.Linear(C, C, bias=False) for _ in range(L)).cuda()
    scores = nn.ModuleList(nn.Linear(2 * C, 1) for _ in range(L)).cuda()
    x = torch.randn(NODES, C, device="cuda")
    source, target = torch.randint(NODES, (2, EDGES), device="cuda")

    @torch.no_grad()
    def run():
        y = x
        for layer, score in zip(layers, scores, strict=True):
            z = layer(y)
            there, here = z[source], z[target]
            weight = nn.functional.leaky_relu(score(torch.cat([there, here], 1)), 0.2).exp()
            total = torch.zeros(NODES, 1, device="cuda").index_add_(0, target, weight)
            y = y + torch.zeros_like(z).index_add_(0, target, there * weight) / (total + 1e-9)
        return y.log_softmax(1)

    if form == "a":
        return lambda i: run()
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda i: graph.replay()
