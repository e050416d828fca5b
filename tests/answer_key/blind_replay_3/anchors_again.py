"""A detector whose anchor boxes depend on the picture's size. a: made in Python and uploaded each time, b: kept on the GPU."""

import torch
from torch import nn

B, S, C = 8, 512, 48


def anchors():
    boxes = []
    for stride in (16, 32):
        for y in range(S // stride):
            for x in range(S // stride):
                boxes += [[x * stride, y * stride, stride * 4, stride * 4 * ratio] for ratio in (0.5, 1.0)]
    return torch.tensor(boxes, dtype=torch.float32)


def build(form):
    layers, width = [], 3
    for wider in (C, 2 * C, 4 * C, 8 * C):
        layers += [
            nn.Conv2d(width, wider, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(wider, wider, 3, padding=1),
            nn.ReLU(),
        ]
        width = wider
    trunk = nn.Sequential(*layers).cuda().half().to(memory_format=torch.channels_last)
    heads = nn.ModuleList(nn.Conv2d(width, 10, 3, stride=stride, padding=1) for stride in (1, 2)).cuda().half()
    pictures = torch.randn(B, 3, S, S, device="cuda").half().to(memory_format=torch.channels_last)
    known = anchors().cuda()

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("anchors"):
            boxes = anchors().cuda() if form == "a" else known
        with torch.cuda.nvtx.range("detect"):
            x = trunk(pictures)
            found = torch.cat([head(x).permute(0, 2, 3, 1).reshape(B, -1, 5) for head in heads], 1).float()
            centres = boxes[:, :2] + found[..., :2] * boxes[:, 2:]
            sizes = boxes[:, 2:] * found[..., 2:4].clamp(max=4).exp()
            return torch.cat([centres - sizes / 2, centres + sizes / 2, found[..., 4:]], 2)

    return step
