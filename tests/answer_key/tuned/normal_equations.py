"""Least squares in float64: large products, the GPU is always busy. a: eager, b: a CUDA graph (wins nothing)."""

import torch

N, C = 4096, 2048


def build(form):
    x, y = (
        torch.randn(N, C, device="cuda", dtype=torch.float64),
        torch.randn(N, 256, device="cuda", dtype=torch.float64),
    )
    ridge, state = (
        torch.eye(C, device="cuda", dtype=torch.float64),
        torch.zeros(C, 256, device="cuda", dtype=torch.float64),
    )

    @torch.no_grad()
    def run():
        gram = x.t() @ x + ridge
        for _ in range(3):
            state.add_(x.t() @ (y - x @ state) - ridge @ state, alpha=1e-6)
        return gram @ state

    if form == "a":
        return lambda i: run()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda i: graph.replay()
