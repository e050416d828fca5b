"""Data-parallel training of a convnet on two GPUs, all-reduces beside the backward. b: half the bytes (wins nothing)."""

import os

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

B, S, C, L = 32, 56, 256, 5
rank = int(os.environ.get("RANK", 0))
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def build(form):
    torch.manual_seed(0)
    layers = (part for _ in range(L) for part in (nn.Conv2d(C, C, 3, padding=1), nn.ReLU()))
    net = (
        nn.Sequential(nn.Conv2d(3, C, 3, padding=1), *layers, nn.Conv2d(C, 3, 1))
        .cuda()
        .to(memory_format=torch.channels_last)
    )
    model = DistributedDataParallel(net, bucket_cap_mb=3)
    if form == "b":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(B, 3, S, S, device="cuda").to(memory_format=torch.channels_last)

    def step(i):
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
