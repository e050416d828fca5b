"""A request to a chat model: prefill, then four tokens. a: the host asks after each token whether all have ended."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, C, H, L, V, PROMPT, TOKENS, END = 4, 1024, 16, 3, 256000, 128, 4, 7


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(C) for _ in range(2))
        self.qkv, self.out = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*size, bias=False) for size in ((C, 3 * C), (C, 3 * C), (3 * C, C)))

    def forward(self, x, cache, start):
        length = x.shape[1]
        q, k, v = self.qkv(self.norms[0](x)).view(B, length, 3, H, C // H).permute(2, 0, 3, 1, 4)
        cache[:, :, :, start : start + length] = torch.stack([k, v])
        k, v = cache[:, :, :, : start + length]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(B, length, C))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def build(form):
    embed, head = nn.Embedding(V, C).cuda().bfloat16(), nn.Linear(C, V, bias=False).cuda().bfloat16()
    layers = nn.ModuleList(Layer() for _ in range(L)).cuda().bfloat16()
    caches = torch.zeros(L, 2, B, H, PROMPT + TOKENS, C // H, device="cuda", dtype=torch.bfloat16)
    prompt = torch.randint(V, (B, PROMPT), device="cuda")

    def logits(ids, start):
        x = embed(ids)
        for layer, cache in zip(layers, caches, strict=True):
            x = layer(x, cache, start)
        return head(x[:, -1])

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("prefill"):
            ids = logits(prompt, 0).argmax(-1, keepdim=True)
        for token in range(TOKENS):
            with torch.cuda.nvtx.range("decode"):
                if form == "a" and (ids == END).all().item():
                    break
                ids = logits(ids, PROMPT + token).argmax(-1, keepdim=True)
        return ids

    return step
