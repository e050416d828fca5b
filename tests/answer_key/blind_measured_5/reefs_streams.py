"""Reefs: running sums beside running products on a second stream, then both. a: products of all, b: half (wins nothing)."""

import torch

SUMS, ROWS, LONG = 14, 32, 1 << 16
SAME = 1e-3


def build(form):
    torch.manual_seed(0)
    reef = torch.rand(ROWS, LONG, device="cuda") - 0.5
    coral = 1 + 1e-6 * torch.rand(ROWS, LONG, device="cuda")
    coral = coral if form == "a" else coral[:, : LONG // 2].contiguous()
    beside, begun, done = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()

    @torch.no_grad()
    def step(i):
        main = torch.cuda.current_stream()
        begun.record(main)
        with torch.cuda.stream(beside):
            beside.wait_event(begun)
            grown = coral
            for _ in range(6):
                grown = torch.cumprod(grown, 1).clamp_(max=1.1)
            last = grown[:, : LONG // 2].mean(1, keepdim=True)
            done.record(beside)
        depth = reef
        for _ in range(SUMS):
            depth = torch.cumsum(depth, 1) * 2e-5
        main.wait_event(done)
        last.record_stream(main)
        return depth + last

    return step
