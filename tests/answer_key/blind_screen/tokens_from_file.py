"""Pre-training whose tokens lie in a file. a: each batch is read past the page cache, b: from memory."""

import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, T, C, V, BYTES = 16, 256, 256, 4096, 24 << 20


def build(form):
    model = nn.Sequential(
        nn.Embedding(V, C), nn.LayerNorm(C), nn.Linear(C, 4 * C), nn.ReLU(), nn.Linear(4 * C, V)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    file = tempfile.TemporaryFile(dir=".")  # noqa: SIM115
    file.write(os.urandom(BYTES))
    file.flush()
    os.fsync(file.fileno())
    memory = os.pread(file.fileno(), BYTES, 0)

    def step(i):
        text = memory
        if form == "a":
            with torch.cuda.nvtx.range("read tokens"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                text = os.pread(file.fileno(), BYTES, 0)
        raw = torch.frombuffer(bytearray(text[: 2 * B * (T + 1)]), dtype=torch.int16)
        ids = (raw.cuda().long() % V).view(B, T + 1)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
