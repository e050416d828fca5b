"""An ensemble of four small nets in one CUDA graph. a: captured net after net, b: each on a branch of the graph."""

import torch
from torch import nn

B, C, L, NETS = 16, 1024, 20, 4


def build(form):
    nets = [nn.Sequential(*(nn.Linear(C, C) for _ in range(L))).cuda().half() for _ in range(NETS)]
    x = torch.randn(B, C, device="cuda", dtype=torch.half)
    streams = [torch.cuda.Stream() for _ in nets]

    @torch.no_grad()
    def run():
        if form == "a":
            return torch.stack([net(x) for net in nets]).mean(0)
        here, outs = torch.cuda.current_stream(), []
        for net, stream in zip(nets, streams, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                outs.append(net(x))
        for stream in streams:
            here.wait_stream(stream)
        return torch.stack(outs).mean(0)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda i: graph.replay()
