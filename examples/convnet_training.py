"""A training step of a small residual convolutional net: forward, loss, backward, SGD. Random weights, no NVTX.

Run        python examples/convnet_training.py [--tiny]
Expert's list, before any capture
1. BatchNorm, ReLU and the residual sum are kernels of their own behind each convolution.
2. Convolutions take most of the time, in float32 without tensor cores: bfloat16 and channels_last.
3. `loss.item()` in each step makes host and GPU take turns.
"""

import sys

import torch
from torch import nn

TINY, DEVICE = "--tiny" in sys.argv, "cuda" if torch.cuda.is_available() else "cpu"
BATCH, SIZE, WIDTH, BLOCKS, STEPS = (2, 16, 8, 2, 3) if TINY else (64, 112, 64, 6, 10)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2, self.relu = nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH), nn.ReLU()

    def forward(self, x):
        y = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(y)) + x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, WIDTH, 3, padding=1), nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, 100)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


model = Net().to(DEVICE)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
images, labels = torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE), torch.randint(100, (BATCH,), device=DEVICE)
total = 0.0
for _ in range(STEPS):
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimiser.step()
    total += loss.item()
print(f"mean loss {total / STEPS:.3f}")
