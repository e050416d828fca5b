"""Data-parallel training on two GPUs, one all-reduce after the backward. a: gradients of fp32, b: of bf16."""

import os

import torch
from torch import distributed as dist
from torch import nn

B, C, L = 2048, 4096, 4
rank = int(os.environ.get("RANK", 0))
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def build(form):
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(L) for part in (nn.Linear(C, C), nn.GELU()))).cuda().bfloat16()
    parameters = list(model.parameters())
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    count = sum(p.numel() for p in parameters)
    sent = torch.zeros(count, device="cuda", dtype=torch.float32 if form == "a" else torch.bfloat16)

    def step(i):
        (model(x) - x).square().mean().backward()
        dist.all_reduce(sent, dist.ReduceOp.AVG)
        for p in parameters:
            p.grad = None

    return step
