"""Run four chains of kernels as programs write them, and ready-made fused kernels: do they gain what the plan predicts?

Run        python examples/kinds/chains.py [--tiny]
"""

import sys

import torch
from torch import nn

TINY, DEVICE = "--tiny" in sys.argv, "cuda" if torch.cuda.is_available() else "cpu"
ROWS, WIDTH, SIZE, PARAMETERS = (64, 256, 32, 1 << 12) if TINY else (32768, 4096, 128, 1 << 27)


class RmsNorm(nn.Module):
    def forward(self, x, _, cos, sin):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Rotary(nn.Module):
    def forward(self, x, _, cos, sin):
        y = x.view(ROWS, -1, SIZE)
        return y * cos + torch.cat((-y[..., SIZE // 2 :], y[..., : SIZE // 2]), -1) * sin


class SwiGlu(nn.Module):
    def forward(self, gate, up, cos, sin):
        return nn.functional.silu(gate) * up


class Chains(nn.ModuleDict):
    def forward(self, *tensors):
        return [part(*tensors[: 1 if isinstance(part, nn.RMSNorm) else 4]).flatten()[0] for part in self.values()]


@torch.compile
def adam(weight, gradient, mean, square):
    mean.lerp_(gradient, 0.1)
    weight.addcdiv_(mean, square.mul_(0.999).addcmul_(gradient, gradient, value=0.001).sqrt() + 1e-8, value=-1e-3)


ready_made = nn.RMSNorm(WIDTH, eps=1e-6, elementwise_affine=False)
parts = {"rms_norm": RmsNorm(), "fused_rms_norm": ready_made, "rotary": Rotary(), "swiglu": SwiGlu()}
parts |= {f"compiled_{name}": torch.compile(type(parts[name])()) for name in ("rms_norm", "rotary", "swiglu")}
chains, kind = Chains(parts), {"device": DEVICE, "dtype": torch.bfloat16}
x, other = (torch.randn(ROWS, WIDTH, **kind) for _ in range(2))
angles = torch.arange(ROWS, device=DEVICE)[:, None, None] / 1e4 ** (torch.arange(SIZE, device=DEVICE) / SIZE)
cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
with torch.no_grad():
    for _ in range(4):
        chains(x, other, cos, sin)
weight = nn.Parameter(torch.randn(PARAMETERS, device=DEVICE))
weight.grad, *moments = torch.rand(3, PARAMETERS, device=DEVICE)
for _ in range(4):
    adam(weight.detach(), weight.grad, *moments)
for optimiser in (torch.optim.Adam([weight], foreach=False), torch.optim.AdamW([weight], fused=True)):
    for _ in range(4):
        optimiser.step()
print(f"{weight.sum().item():.1f}")
