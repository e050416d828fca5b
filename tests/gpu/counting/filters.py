"""A small program on which ncu's filters can be seen: nested ranges with special characters, a warm-up outside the window."""

from __future__ import annotations

import torch

push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop


def step(x: torch.Tensor) -> None:
    """mul, add in h.N/w[0]*, then mul, relu in h.N/mlp; three layers."""
    push("step")
    for layer in range(3):
        push(f"h.{layer}")
        push("w[0]*")
        x.mul_(1.0)
        x.add_(1.0)
        pop()
        push("mlp")
        x.mul_(1.0)
        x.relu_()
        pop()
        pop()
    pop()


def main() -> None:
    """One step before the window, four in it."""
    x = torch.ones(1 << 20, device="cuda")
    step(x)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for _ in range(4):
        step(x)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
