"""Tensor parallelism on two GPUs; each rank computes what nobody reads. b: it does not."""

import os

import torch
from torch import distributed as dist

B, C, L = 4096, 4096, 4
rank = int(os.environ.get("RANK", 0))
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def build(form):
    w = (torch.randn(C, C, device="cuda") * 0.01).bfloat16()
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        y = x
        for _ in range(L):
            y = y @ w
            if form == "a":
                torch.erfinv(y)
            dist.all_reduce(y)
        return y

    return step
