"""Frames of a video decoder: upload, YUV to RGB, resize, classify. a: the decoder's buffers are pageable, b: pinned."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, H, W = 8, 1088, 1920


def build(form):
    layers, width = [], 3
    for wider in (32, 64, 128, 256):
        layers += [nn.Conv2d(width, wider, 3, stride=2, padding=1), nn.ReLU()]
        width = wider
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 400)).cuda().half()
    model = model.to(memory_format=torch.channels_last)
    planes = [torch.randint(256, (B, 3 * H // 2, W), dtype=torch.uint8) for _ in range(3)]
    if form == "b":
        planes = [plane.pin_memory() for plane in planes]
    matrix = torch.tensor([[1.0, 0.0, 1.57], [1.0, -0.19, -0.47], [1.0, 1.86, 0.0]], device="cuda").half()

    @torch.no_grad()
    def step(i):
        frames = planes[i % 3].to("cuda", non_blocking=True)
        light = frames[:, None, :H].half() / 255
        colour = frames[:, H:].reshape(B, H // 2, W // 2, 2).permute(0, 3, 1, 2).half() / 255 - 0.5
        small = torch.cat([F.interpolate(part, (320, 576), mode="bilinear") for part in (light, colour)], 1)
        rgb = torch.einsum("rc,bchw->brhw", matrix, small).to(memory_format=torch.channels_last)
        return model(rgb).argmax(1)

    return step
