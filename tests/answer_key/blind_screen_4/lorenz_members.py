"""An ensemble of Lorenz systems by Runge-Kutta, five small steps a call. a: operation by operation, b: as one CUDA graph."""

import torch

MEMBERS, SMALL = 16384, 5


def slope(state):
    x, y, z = state
    return torch.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z))


def build(form):
    state = torch.randn(3, MEMBERS, device="cuda")

    def run():
        now = state
        for _ in range(SMALL):
            first = slope(now)
            second = slope(now + 0.005 * first)
            third = slope(now + 0.005 * second)
            fourth = slope(now + 0.01 * third)
            now = now + 0.01 / 6 * (first + 2 * second + 2 * third + fourth)
        state.copy_(now)

    if form == "a":
        return lambda i: run()
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda i: graph.replay()
