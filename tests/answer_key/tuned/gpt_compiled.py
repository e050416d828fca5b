"""GPT inference in bfloat16, compiled with CUDA graphs, in batches that fill the GPU: nothing is worth doing."""

import torch
from parts import GPT

B, T, C, V = 32, 512, 1024, 16384


def build(form):
    model = torch.compile(GPT(V, C, 16, 4, T).cuda().bfloat16(), mode="reduce-overhead")
    ids = torch.randint(V, (B, T), device="cuda")

    @torch.no_grad()
    def step(i):
        torch.compiler.cudagraph_mark_step_begin()
        return model(ids)

    return step
