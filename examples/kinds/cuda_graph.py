"""Record a decode step in a CUDA graph, and replay it for every token. Which layer launched each of its kernels?

Run        python examples/kinds/cuda_graph.py [--tiny]
"""

import sys

import torch
from torch import nn

if not torch.cuda.is_available():
    sys.exit("This example needs an NVIDIA GPU.")
TINY = "--tiny" in sys.argv
LAYERS, WIDTH, TOKENS = (2, 64, 4) if TINY else (8, 2048, 16)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


model = nn.Sequential(*(Block() for _ in range(LAYERS))).cuda().bfloat16().requires_grad_(False)
x = torch.randn(1, WIDTH, device="cuda", dtype=torch.bfloat16)
apart = torch.cuda.Stream()
apart.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(apart):  # libraries set themselves up before a graph is recorded
    model(x)
torch.cuda.current_stream().wait_stream(apart)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = model(x)
for _ in range(TOKENS):
    x.copy_(y)
    graph.replay()
torch.cuda.synchronize()
print(f"{y.float().mean().item():.4f}")
