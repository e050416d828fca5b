"""Clean: the products of a wide trunk, replayed as a CUDA graph. Products are the limit."""

import torch

B, C, LAYERS = 8192, 8192, 8


def build(form):
    weights = [torch.randn(C, C, device="cuda").mul_(C**-0.5).bfloat16() for _ in range(LAYERS)]
    start = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    def trunk():
        x = start
        for weight in weights:
            x = x @ weight
        return x

    trunk()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = trunk()

    def step(i):
        graph.replay()
        return answer

    return step
