"""A 3D convnet over clips of video. a: eager, b: a CUDA graph (wins nothing)."""

import torch
from torch import nn

B, C, T, S = 4, 64, 16, 56


def build(form):
    layers = (
        part for _ in range(5) for part in (nn.Conv3d(C, C, 3, padding=1, bias=False), nn.BatchNorm3d(C), nn.ReLU())
    )
    model = nn.Sequential(*layers).cuda().half().eval().to(memory_format=torch.channels_last_3d)
    x = torch.randn(B, C, T, S, S, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last_3d)

    @torch.no_grad()
    def run():
        return model(x).mean((2, 3, 4))

    if form == "a":
        return lambda i: run()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda i: graph.replay()
