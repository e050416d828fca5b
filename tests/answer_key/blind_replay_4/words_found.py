"""Speech recognition: the host joins repeated symbols into words. a: symbol by symbol in Python, b: with NumPy."""

import numpy as np
import torch
from torch import nn

B, T, C, V = 64, 800, 512, 64


def build(form):
    net = (
        nn.Sequential(nn.Linear(C, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, V)).cuda().half()
    )
    x = torch.randn(B, T, C, device="cuda", dtype=torch.half)

    def joined(symbols):
        if form == "b":
            fresh = np.diff(symbols, axis=1, prepend=-1) != 0
            return [row[new & (row > 0)] for row, new in zip(symbols, fresh, strict=True)]
        texts = []
        for row in symbols.tolist():
            last, text = -1, []
            for symbol in row:
                if symbol not in (last, 0):
                    text.append(symbol)
                last = symbol
            texts.append(text)
        return texts

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("listen"):
            symbols = net(x).argmax(2).cpu().numpy()
        with torch.cuda.nvtx.range("join symbols"):
            return joined(symbols)

    return step
