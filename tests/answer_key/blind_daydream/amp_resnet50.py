"""ResNet-50. a: FP32, b: automatic mixed precision."""

import torch
from networks import made, pictures, resnet50, trained

B = 64


def build(form):
    return trained(form, made(resnet50), pictures(B), torch.optim.SGD)
