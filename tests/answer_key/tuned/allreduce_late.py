"""Data-parallel training on two GPUs. a: one all-reduce after the whole backward, b: DDP's buckets beside it."""

import os

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

B, C, L = 2048, 4096, 4
rank = int(os.environ.get("RANK", 0))
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def build(form):
    torch.manual_seed(0)
    layers = (part for _ in range(L) for part in (nn.Linear(C, C), nn.GELU()))
    model = nn.Sequential(*layers).cuda().bfloat16()
    parameters = list(model.parameters())
    if form == "b":
        model = DistributedDataParallel(model, bucket_cap_mb=32)
    optimizer = torch.optim.SGD(parameters, lr=1e-4, fused=True)
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        (model(x) - x).square().mean().backward()
        if form == "a":
            for p in parameters:
                dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()

    return step
