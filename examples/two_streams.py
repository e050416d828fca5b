"""Copy batches from host memory on one stream and compute on another, double-buffered. No NVTX, no module.

Run        python examples/two_streams.py [--tiny]
Expert's list, before any capture
1. Copies to the GPU take longer than the work on them: the program runs at the speed of PCIe.
2. The host memory is pageable, so the copies do not overlap: pin it.
3. The work is a chain of elementwise kernels between the products: one kernel.
"""

import sys

import torch

if not torch.cuda.is_available():
    sys.exit("This example needs an NVIDIA GPU.")
TINY, DEVICE = "--tiny" in sys.argv, "cuda"
BATCHES, ROWS, WIDTH = (4, 64, 64) if TINY else (12, 8192, 4096)

copying, working = torch.cuda.Stream(), torch.cuda.Stream()
host = [torch.randn(ROWS, WIDTH) for _ in range(2)]
there = [torch.empty(ROWS, WIDTH, device=DEVICE) for _ in host]
weight = torch.randn(WIDTH, WIDTH, device=DEVICE)
arrived, done = ([torch.cuda.Event() for _ in host] for _ in range(2))
total = torch.zeros((), device=DEVICE)
torch.cuda.synchronize()
for number in range(BATCHES):
    slot = number % 2
    with torch.cuda.stream(copying):
        copying.wait_event(done[slot])
        there[slot].copy_(host[slot], non_blocking=True)
        arrived[slot].record()
    with torch.cuda.stream(working):
        working.wait_event(arrived[slot])
        y = there[slot] @ weight
        y = (y * 0.5 + 1).clamp(min=0) * y
        total += y.mean()
        done[slot].record()
torch.cuda.synchronize()
print(f"{total.item() / BATCHES:.4f}")
