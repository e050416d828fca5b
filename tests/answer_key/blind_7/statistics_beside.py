"""Products with a chain of small statistics on a side stream (b: one reduction there; wins nothing: it is hidden)."""

import torch

N, M = 8192, 1 << 21


def build(form):
    left, right = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    small = torch.randn(M, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    def step(i):
        with torch.cuda.stream(side):
            y = small
            if form == "a":
                for _ in range(8):
                    y = (y * 0.5).tanh() + 0.1
            mean = y.mean()
        out = left @ right
        out = out @ right
        torch.cuda.current_stream().wait_stream(side)
        return out, mean

    return step
