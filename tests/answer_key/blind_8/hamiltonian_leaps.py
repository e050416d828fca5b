"""Bayesian regression sampled by Hamiltonian dynamics. a: each leap's operations one by one, b: all leaps as a CUDA graph."""

import torch

N, C, CHAINS, LEAPS, EPS = 2048, 64, 16, 12, 1e-3
SAME = 1e-3


def build(form):
    torch.manual_seed(0)
    x = torch.randn(N, C, device="cuda")
    labels = (torch.rand(N, CHAINS, device="cuda") > 0.5).float()
    weights = torch.randn(C, CHAINS, device="cuda") * 0.1
    kicks = torch.randn(16, C, CHAINS, device="cuda")
    kick = torch.zeros(C, CHAINS, device="cuda")

    def slope(w):
        return torch.addmm(w, x.T, torch.sigmoid(x @ w) - labels)

    def leaps():
        w, speed = weights, torch.add(kick, slope(weights), alpha=-EPS / 2)
        for _ in range(LEAPS):
            w = torch.add(w, speed, alpha=EPS)
            speed = torch.add(speed, slope(w), alpha=-EPS)
        return torch.cat((w, speed))

    if form == "b":
        leaps()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = leaps()

    @torch.no_grad()
    def step(i):
        kick.copy_(kicks[i % 16])
        if form == "a":
            return leaps()
        graph.replay()
        return kept

    return step
