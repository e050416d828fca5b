"""Training of adapters of rank 16 on frozen layers. a: float32 products, b: TF32."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, T, C, H, L, R = 8, 256, 1536, 12, 2, 16


class Adapted(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.frozen = nn.Linear(c_in, c_out, bias=False).requires_grad_(False)
        self.first, self.second = nn.Linear(c_in, R, bias=False), nn.Linear(R, c_out, bias=False)

    def forward(self, x):
        return self.frozen(x) + self.second(self.first(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.up, self.down = (
            Adapted(C, 3 * C), Adapted(C, C), Adapted(C, 4 * C), Adapted(4 * C, C)
        )  # fmt: skip

    def forward(self, x):
        q, k, v = self.qkv(F.layer_norm(x, (C,))).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(F.layer_norm(x, (C,)))))


def build(form):
    layers = nn.Sequential(*(Layer() for _ in range(L))).cuda()
    trained = [weight for weight in layers.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    x = torch.randn(B, T, C, device="cuda")

    def step(i):
        torch.set_float32_matmul_precision("highest" if form == "a" else "high")
        layers(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
