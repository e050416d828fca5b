"""Run two processes on one GPU, the second with twice the work. Which process launched each kernel, and which waits?

Run        python examples/kinds/two_processes.py [--tiny]
"""

import sys

import torch
from torch import multiprocessing, nn

TINY, DEVICE = "--tiny" in sys.argv, "cuda" if torch.cuda.is_available() else "cpu"
LAYERS, WIDTH, ROWS, STEPS = (2, 32, 4, 3) if TINY else (4, 2048, 2048, 10)


def work(rank):
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).to(DEVICE)
    x = torch.randn(ROWS * (rank + 1), WIDTH, device=DEVICE)
    with torch.no_grad():
        total = sum(model(x).mean().item() for _ in range(STEPS))
    print(f"process {rank}: {total / STEPS:.4f}")


if __name__ == "__main__":
    multiprocessing.spawn(work, nprocs=2)
