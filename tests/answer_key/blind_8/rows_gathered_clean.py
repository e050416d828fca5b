"""Clean: wide rows of a large table gathered by their numbers, as for nearest neighbours. Memory is the limit."""

import torch

ROWS, C, CHOSEN = 1 << 20, 1024, 1 << 20


def build(form):
    table = torch.randn(ROWS, C, device="cuda", dtype=torch.bfloat16)
    chosen = torch.randperm(ROWS, device="cuda")[:CHOSEN]
    out = torch.empty(CHOSEN, C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        return torch.index_select(table, 0, chosen, out=out)

    return step
