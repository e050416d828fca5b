"""Entropic transport between two clouds of points: products of a kernel with scalings. a: float32, b: TF32."""

import torch

N, BATCH, ROUNDS = 8192, 512, 4


def build(form):
    kernel = torch.rand(N, N, device="cuda") + 0.01
    a, b = torch.rand(N, BATCH, device="cuda"), torch.rand(N, BATCH, device="cuda")

    @torch.no_grad()
    def step(i):
        torch.backends.cuda.matmul.allow_tf32 = form == "b"
        u = a
        for _ in range(ROUNDS):
            v = b / (kernel @ u)
            u = a / (kernel @ v)
        return u

    return step
