"""Augmentation of pictures on the GPU. a: each of four operations turns them to planes and back, b: once for all four."""

import torch
from torch.nn import functional as F  # noqa: N812

B, SIDE = 24, 512


def build(form):
    pictures = torch.rand(B, SIDE, SIDE, 3, device="cuda")
    angle = torch.tensor([[0.98, 0.17, 0.0], [-0.17, 0.98, 0.0]], device="cuda").expand(B, 2, 3)
    grid = F.affine_grid(angle, [B, 3, SIDE, SIDE], align_corners=False)
    operations = [
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        lambda x: F.grid_sample(x, grid, align_corners=False),
        lambda x: F.interpolate(x[:, :, 32:-32, 32:-32], (SIDE, SIDE), mode="bilinear"),
        lambda x: F.max_pool2d(x, 3, 1, 1),
    ]

    def planes(x):
        return x.permute(0, 3, 1, 2).contiguous()

    def back(x):
        return x.permute(0, 2, 3, 1).contiguous()

    def step(i):
        if form == "a":
            x = pictures
            for operation in operations:
                x = back(operation(planes(x)))
            return x
        x = planes(pictures)
        for operation in operations:
            x = operation(x)
        return back(x)

    return step
