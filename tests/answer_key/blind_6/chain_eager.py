"""Large products that depend on each other, in eager PyTorch. b: a CUDA graph of them (wins nothing)."""

import torch

N, COUNT = 6144, 24


def build(form):
    torch.manual_seed(0)
    matrix = torch.randn(N, N, device="cuda", dtype=torch.bfloat16) / N**0.5
    first = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    spare = [torch.empty_like(first) for _ in range(2)]

    @torch.no_grad()
    def products():
        x = first
        for k in range(COUNT):
            x = torch.mm(x, matrix, out=spare[k % 2])
        return x

    if form == "a":
        return lambda i: products()
    products()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        products()
    return lambda i: graph.replay()
