"""Molecular dynamics that writes each frame. a: each frame is forced to the disk, b: each 64th."""

import os
import tempfile

import torch

N, FRAMES = 100_000, 32


def build(form):
    places = torch.rand(N, 3, device="cuda")
    speeds = torch.zeros_like(places)
    frame = torch.empty(N, 3, pin_memory=True)
    file = tempfile.TemporaryFile(dir=".")  # noqa: SIM115
    each = 1 if form == "a" else 64

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("integrate"):
            for _ in range(6):
                force = places.roll(1, 0) + places.roll(-1, 0) - 2 * places
                speeds.add_(force, alpha=0.01)
                places.add_(speeds, alpha=0.01)
            frame.copy_(places)
        with torch.cuda.nvtx.range("trajectory"):
            file.seek(i % FRAMES * N * 12)
            file.write(frame.numpy().data)
            file.flush()
            if i % each == each - 1:
                os.fsync(file.fileno())
        return places

    return step
