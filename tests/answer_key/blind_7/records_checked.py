"""Scoring of records. a: Python hashes each record's key before the upload, b: the keys were hashed when they arrived."""

import zlib

import torch
from torch import nn

B, C = 4096, 1024


def build(form):
    keys = [f"user-{number:08d}/item-{number * 7919 % 100003:06d}".encode() for number in range(B)]
    table = nn.Embedding(65536, C).cuda().half()
    head = nn.Sequential(nn.Linear(C, 4 * C), nn.ReLU(), nn.Linear(4 * C, 1)).cuda().half()

    def hashed():
        return [zlib.crc32(key) % 65536 for key in keys]

    ready = torch.tensor(hashed()).pin_memory()

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("keys"):
            ids = torch.tensor(hashed()).pin_memory() if form == "a" else ready
        with torch.cuda.nvtx.range("score"):
            scores = head(table(ids.to("cuda", non_blocking=True)))
            return scores.amax().item()

    return step
