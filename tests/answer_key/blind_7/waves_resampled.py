"""Training on audio that is resampled when it is loaded. a: the loader works in the main process, b: it has eight workers."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

B, N = 32, 48000


class Waves(Dataset):
    """Waves at 48 kHz, read at 16 kHz."""

    def __init__(self):
        self.waves = np.random.default_rng(0).standard_normal((B, N), dtype=np.float32)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, number):
        wave = self.waves[number % B]
        spectrum = np.fft.rfft(wave)[: N // 6 + 1]
        return torch.from_numpy(np.fft.irfft(spectrum).astype(np.float32))


def build(form):
    workers = {} if form == "a" else {"num_workers": 8, "prefetch_factor": 4, "persistent_workers": True}
    batches = iter(DataLoader(Waves(), B, **workers))
    net = nn.Sequential(
        nn.Conv1d(1, 256, 400, 160), nn.ReLU(), nn.Conv1d(256, 512, 3), nn.ReLU(), nn.Conv1d(512, 512, 3)
    ).cuda()
    optimiser = torch.optim.SGD(net.parameters(), 1e-3, foreach=True)

    def step(i):
        batch = next(batches).to("cuda")
        loss = net(batch[:, None]).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss

    return step
