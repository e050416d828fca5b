"""Message passing over molecules. a: Python makes the edges of each batch in the loop, b: they were made before."""

import torch
from torch import nn

MOLECULES, ATOMS, C = 40, 20, 256


def edges_of(seed):
    found = []
    for molecule in range(MOLECULES):
        first = molecule * ATOMS
        for atom in range(ATOMS):
            for bond in (1, 2 + (seed + atom) % 3):
                other = (atom + bond) % ATOMS
                found.append((first + atom, first + other))
                found.append((first + other, first + atom))
    return torch.tensor(sorted(found)).t()


def build(form):
    messages = nn.ModuleList(nn.Sequential(nn.Linear(2 * C, C), nn.SiLU(), nn.Linear(C, C)) for _ in range(4)).cuda()
    atoms = torch.randn(MOLECULES * ATOMS, C, device="cuda")
    made = [edges_of(seed) for seed in range(4)]

    @torch.no_grad()
    def step(i):
        start, end = (edges_of(i % 4) if form == "a" else made[i % 4]).cuda()
        x = atoms
        for message in messages:
            x = x.index_add(0, end, message(torch.cat([x[start], x[end]], 1)))
        return x.mean(0)

    return step
