"""The loss of a language model's head over a large vocabulary in Triton. a: its scores are widened to float32 first, b: in the kernel."""

import torch
import triton
import triton.language as tl

N, C, V, TILE = 4096, 1024, 65536, 4096


@triton.jit
def losses(scores, labels, out, words: tl.constexpr, TILE: tl.constexpr):  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    most, total = -float("inf"), 0.0
    for start in range(0, words, TILE):
        x = tl.load(scores + row * words + start + tl.arange(0, TILE)).to(tl.float32)
        higher = tl.maximum(most, tl.max(x, 0))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(x - higher), 0)
        most = higher
    right = tl.load(scores + row * words + tl.load(labels + row)).to(tl.float32)
    tl.store(out + row, most + tl.log(total) - right)


def build(form):
    head = torch.randn(V, C, device="cuda", dtype=torch.bfloat16) * 0.02
    x = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    labels, out = torch.randint(V, (N,), device="cuda"), torch.empty(N, device="cuda")

    def step(i):
        scores = x @ head.t()
        if form == "a":
            scores = scores.float()
        losses[(N,)](scores, labels, out, V, TILE, num_warps=8)
        return out.mean()

    return step
