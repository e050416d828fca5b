"""Training on two GPUs, one of which was set up otherwise. a: rank 1 multiplies in float32, b: both ranks in TF32."""

import os

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

B, C, L = 4096, 2048, 6
rank = int(os.environ.get("RANK", 0))
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.ReLU()) for _ in range(L))).cuda()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(B, C, device="cuda")

    def step(i):
        torch.backends.cuda.matmul.allow_tf32 = form == "b" or rank == 0
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
