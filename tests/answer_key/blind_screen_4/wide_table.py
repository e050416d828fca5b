"""Features of users gathered from a table larger than the cache. a: the table is float32, b: bfloat16."""

import torch
from torch.nn import functional as F  # noqa: N812

ROWS, C, USERS, ITEMS = 2_000_000, 256, 65536, 32


def build(form):
    table = torch.randn(ROWS, C, device="cuda").to(torch.float32 if form == "a" else torch.bfloat16)
    bags = torch.randint(ROWS, (USERS, ITEMS), device="cuda")

    @torch.no_grad()
    def step(i):
        return F.embedding_bag(bags, table, mode="sum").float().norm(dim=1)

    return step
