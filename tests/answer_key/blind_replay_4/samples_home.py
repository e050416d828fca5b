"""Products that fill the GPU, while a second stream downloads samples of the last step. b: no download (wins nothing)."""

import torch

B, C, L, SAMPLES = 8192, 8192, 2, 512


def build(form):
    weights = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * 0.01 for _ in range(L)]
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    work, home = torch.cuda.current_stream(), torch.cuda.Stream()
    kept, host = (
        torch.empty(SAMPLES, C, device="cuda", dtype=torch.bfloat16),
        torch.empty(SAMPLES, C, dtype=torch.bfloat16).pin_memory(),
    )
    gone = torch.cuda.Event()

    @torch.no_grad()
    def step(i):
        y = x
        for weight in weights:
            y = y @ weight
        gone.wait(work)
        kept.copy_(y[:SAMPLES])
        if form == "a":
            home.wait_stream(work)
            with torch.cuda.stream(home):
                host.copy_(kept, non_blocking=True)
                gone.record(home)
        return y

    return step
