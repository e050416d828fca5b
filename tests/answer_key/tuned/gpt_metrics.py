"""GPT training that logs the norm of each gradient. a: .item() for each, b: kept on the GPU."""

import torch
from parts import GPT
from torch.nn import functional as F  # noqa: N812

B, T, C, V = 8, 256, 512, 8192
mark = torch.cuda.nvtx.range


def build(form):
    torch.manual_seed(0)
    model = GPT(V, C, 8, 2, T).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(V, (B, T + 1), device="cuda")

    def step(i):
        with mark("forward"):
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        with mark("backward"):
            loss.backward()
        with mark("log norms"):
            norms = [p.grad.norm() for p in model.parameters()]
            if form == "a":
                norms = [norm.item() for norm in norms]
        with mark("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        return norms

    return step
