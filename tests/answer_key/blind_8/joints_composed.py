"""Distances of two robot arms to obstacles. a: NumPy composes the joints of each pose in the loop, b: it did so for all at once before."""

import numpy as np
import torch
from torch import nn

POSES, JOINTS, POINTS, PLANS = 2048, 14, 32, 8
SAME = 1e-2


def joints(angles):
    """Return where the last joint of each pose is: (poses, 4, 4)."""
    placed = np.broadcast_to(np.eye(4, dtype=np.float32), (len(angles), 4, 4))
    for joint in range(JOINTS):
        turn = np.zeros((len(angles), 4, 4), np.float32)
        cos, sin = np.cos(angles[:, joint]), np.sin(angles[:, joint])
        turn[:, 0, 0], turn[:, 0, 1], turn[:, 1, 0], turn[:, 1, 1] = cos, -sin, sin, cos
        turn[:, 2, 2] = turn[:, 3, 3] = 1
        turn[:, :3, 3] = 0.1 * joint
        placed = placed @ turn[:, [2, 0, 1, 3]] if joint % 2 else placed @ turn
    return placed[:, :3].copy()


def build(form):
    torch.manual_seed(0)
    plans = np.random.default_rng(0).standard_normal((PLANS, POSES, JOINTS), dtype=np.float32)
    planned = [joints(angles) for angles in plans]
    shape = torch.randn(4, POINTS, device="cuda") * 0.2
    width = 1024
    distance = nn.Sequential(
        nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    )
    distance = distance.append(nn.Linear(width, 1)).cuda().bfloat16()

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("joints"):
            placed = joints(plans[i % PLANS]) if form == "a" else planned[i % PLANS]
        with torch.cuda.nvtx.range("distances"):
            points = torch.from_numpy(placed).to("cuda", non_blocking=True) @ shape
            points = points.transpose(1, 2).reshape(-1, 3).bfloat16()
            return distance(points).view(POSES, POINTS).amin(1)

    return step
