"""Large crops through a convnet in half precision. a: eager, b: a CUDA graph (wins nothing)."""

import torch
from torch import nn

B, C, S, L = 32, 256, 64, 5


def build(form):
    net = nn.Sequential(*(nn.Conv2d(C, C, 3, padding=1) for _ in range(L))).cuda().half()
    net = net.to(memory_format=torch.channels_last)
    x = torch.randn(B, C, S, S, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def run():
        return net(x)

    if form == "a":
        return lambda i: run()
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda i: graph.replay()
