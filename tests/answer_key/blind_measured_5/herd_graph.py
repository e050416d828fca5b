"""A small herd, moved by ninety short operations a step. b: all of them in one CUDA graph."""

import torch

N = 1 << 15
SAME = 1e-4


def build(form):
    torch.manual_seed(0)
    place, speed = torch.rand(N, device="cuda"), torch.rand(N, device="cuda")
    moved = torch.zeros(N, device="cuda")

    @torch.no_grad()
    def eager(i):
        here, fast = place, speed
        for _ in range(18):
            pull = torch.sin(here)
            fast = fast * 0.95 - pull
            here = here + 0.01 * fast
        moved.copy_(here)
        return moved

    if form == "a":
        return eager
    for number in range(3):
        eager(number)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        eager(0)

    def step(i):
        graph.replay()
        return moved

    return step
