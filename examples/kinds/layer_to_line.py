"""Two kernels in Triton and a compiled module: which layer is slow, in which kernel, at which line?

Run        python examples/kinds/layer_to_line.py
"""

import sys

import torch
from torch import nn

if not torch.cuda.is_available():
    sys.exit("This example needs an NVIDIA GPU.")

import triton
import triton.language as tl

LAYERS, TOKENS, WIDTH, STEPS = 4, 4096, 2048, 8


@triton.jit
def rms_norm(source, weight, target, width, BLOCK: tl.constexpr):  # noqa: N803
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(source + row * width + at, mask=at < width, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x) / width + 1e-6)
    tl.store(target + row * width + at, x * scale * tl.load(weight + at, mask=at < width), mask=at < width)


@triton.jit
def mean_over_tokens(source, target, tokens, width, BLOCK: tl.constexpr):  # noqa: N803
    column, total = tl.program_id(0), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, tokens, BLOCK):
        row = first + tl.arange(0, BLOCK)
        total += tl.load(source + row * width + column, mask=row < tokens, other=0.0)  # one float of each sector
    tl.store(target + column, tl.sum(total) / tokens)


class Norm(nn.RMSNorm):
    def forward(self, x):
        rms_norm[(len(x),)](x, self.weight, y := torch.empty_like(x), WIDTH, BLOCK=WIDTH, num_warps=8)
        return y


class Mix(nn.Module):
    def forward(self, x):
        mean_over_tokens[(WIDTH,)](x, mean := torch.empty(WIDTH, device=x.device), len(x), WIDTH, BLOCK=1024)
        return x + mean


class Gate(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x) + 0.1 * torch.cos(x)


model = nn.Sequential(*(nn.Sequential(Norm(WIDTH), Mix(), Gate()) for _ in range(LAYERS))).cuda().requires_grad_(False)
for layer in model:
    layer[2].compile()
x = torch.randn(TOKENS, WIDTH, device="cuda")
for _ in range(STEPS):
    y = model(x)
    print(f"{y.mean().item():.4f}")
