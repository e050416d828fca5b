"""Training of a graph network on sampled neighbours. a: the loop samples each batch itself, b: threads sample ahead."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

NODES, DEGREE, SEEDS, FAN, C, THREADS, AHEAD = 200_000, 16, 512, 10, 64, 6, 8
torch.set_num_threads(1)


def build(form):
    links = torch.randint(NODES, (NODES, DEGREE))
    features = torch.randn(NODES, C).half()
    first, second = nn.Linear(C, 256).cuda(), nn.Linear(256, 16).cuda()
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-3, fused=True)
    pool, coming = ThreadPoolExecutor(THREADS), deque()

    def neighbours(nodes):
        return links[nodes].gather(1, torch.randint(DEGREE, (len(nodes), FAN)))

    def batch():
        near = neighbours(torch.randint(NODES, (SEEDS,)))
        far = neighbours(near.reshape(-1))
        nodes, places = far.unique(return_inverse=True)
        return features[nodes], places

    def following():
        if form == "a":
            return batch()
        while len(coming) < AHEAD:
            coming.append(pool.submit(batch))
        return coming.popleft().result()

    def step(i):
        with torch.cuda.nvtx.range("sample batch"):
            values, places = following()
        with torch.cuda.nvtx.range("train"):
            hidden = first(values.to("cuda").float()).relu()
            near = hidden[places.to("cuda")].mean(1)
            second(near.view(SEEDS, FAN, -1).mean(1)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    return step
