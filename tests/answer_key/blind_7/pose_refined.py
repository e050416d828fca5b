"""Refinement of camera poses by Gauss-Newton on few points. a: eager, b: the whole step as a CUDA graph."""

import torch

POSES, POINTS, ROUNDS = 16, 64, 20


def build(form):
    torch.manual_seed(0)
    points = torch.randn(POSES, POINTS, 3, device="cuda")
    seen = torch.randn(POSES, POINTS, 2, device="cuda")
    start = 0.01 * torch.randn(POSES, 6, device="cuda")
    eye = 1e-3 * torch.eye(6, device="cuda")
    turns = torch.randn(3, 3, 3, device="cuda") * 0.1

    def refined():
        pose = start
        for _ in range(ROUNDS):
            rotation = torch.eye(3, device="cuda") + torch.einsum("bk,kij->bij", pose[:, :3], turns)
            moved = points @ rotation.transpose(1, 2) + pose[:, None, 3:]
            depth = moved[..., 2:].abs() + 4.0
            residual = (moved[..., :2] / depth - seen).flatten(1)
            slopes = torch.stack([residual * (0.1 + 0.01 * k) + moved.flatten(1)[:, : 2 * POINTS] for k in range(6)], 2)
            normal = slopes.transpose(1, 2) @ slopes + eye
            right = (slopes.transpose(1, 2) @ residual[..., None])[..., 0]
            pose = pose - 0.1 * right / normal.diagonal(dim1=1, dim2=2)
        return pose

    if form == "a":
        return lambda i: refined()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        refined()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = refined()

    def step(i):
        graph.replay()
        return out

    return step
