"""A batch through wide heads in bfloat16 as a CUDA graph, its weights read at the DRAM roof: nothing is worth doing."""

import torch

B, C, L = 64, 8192, 8


def build(form):
    weights = [torch.randn(4 * C, C, device="cuda", dtype=torch.bfloat16) for _ in range(L)]
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    outs = [torch.empty(B, 4 * C, device="cuda", dtype=torch.bfloat16) for _ in range(L)]

    def run():
        for weight, out in zip(weights, outs, strict=True):
            torch.mm(x, weight.t(), out=out)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda i: graph.replay()
