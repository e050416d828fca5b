"""A wide encoder on large batches, operation by operation. b: as a CUDA graph (wins nothing)."""

import torch
from torch import nn

B, T, C = 48, 512, 2048


def build(form):
    layer = nn.TransformerEncoderLayer(C, 16, 4 * C, dropout=0.0, batch_first=True, norm_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda().bfloat16()
    x = torch.randn(B, T, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def forward():
        return net(x)

    if form == "a":
        return lambda i: forward()
    forward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = forward()

    def step(i):
        graph.replay()
        return result

    return step
