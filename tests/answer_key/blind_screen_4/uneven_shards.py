"""Training on two GPUs whose rank 1 got the long documents. a: 700 and 1700 tokens, b: 1200 tokens each."""

import os

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

B, C = 16, 1024
rank = int(os.environ.get("RANK", 0))
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def build(form):
    layers = [nn.TransformerEncoderLayer(C, 16, 4 * C, dropout=0.0, batch_first=True) for _ in range(2)]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda().bfloat16())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    tokens = 1200 if form == "b" else (700, 1700)[rank % 2]
    x = torch.randn(B, tokens, C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
