"""Powers of large matrices: each step makes new tensors, which PyTorch's cache serves. b: out= into kept ones (wins nothing)."""

import torch

C, POWERS = 4096, 8


def build(form):
    matrix = torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * 0.01
    kept = [torch.empty_like(matrix) for _ in range(POWERS)]

    @torch.no_grad()
    def step(i):
        power = matrix
        for k in range(POWERS):
            power = torch.matmul(power, matrix, out=kept[k]) if form == "b" else torch.matmul(power, matrix)
        return power

    return step
