"""Data-parallel training on two GPUs. a: rank 0 computes statistics in Python at each step, b: no rank does."""

import os

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

B, C = 1024, 2048
rank = int(os.environ.get("RANK", 0))
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def build(form):
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(C, C), nn.ReLU(), nn.Linear(C, C), nn.ReLU(), nn.Linear(C, C)).cuda()
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x, text = torch.randn(B, C, device="cuda"), " ".join(f"word{k % 131}" for k in range(20000))

    def step(i):
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if form == "a" and rank == 0:
            counts = {}
            for word in text.split():
                counts[word] = counts.get(word, 0) + 1

    return step
