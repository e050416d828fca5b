"""Training of a U-Net for segmentation. a: Adam tensor by tensor, b: the fused Adam."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, S, W = 8, 96, 32


def pair(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = pair(3, W), pair(W, 2 * W)
        self.up, self.out = pair(3 * W, W), nn.Conv2d(W, 1, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        return self.out(self.up(torch.cat([one, F.interpolate(two, scale_factor=2)], 1)))


def build(form):
    model = UNet().cuda()
    kind = {"foreach": False} if form == "a" else {"fused": True}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **kind)
    x, target = torch.randn(B, 3, S, S, device="cuda"), torch.rand(B, 1, S, S, device="cuda").round()

    def step(i):
        loss = F.binary_cross_entropy_with_logits(model(x), target)
        loss.backward()
        with torch.cuda.nvtx.range("optimizer"):
            optimizer.step()
        optimizer.zero_grad()

    return step
