"""A decoder like Qwen3 (RMSNorm, rotary embedding, grouped heads, SwiGLU), random weights: a prompt, then 16 tokens.

Run        python examples/qwen_like.py [--compile] [--tiny]
Expert's list, before any capture
1. In a decode step the GPU waits for hundreds of short launches: a CUDA graph.
2. RMSNorm is a chain of eight kernels over the same tensor: one kernel.
3. Rotary embedding is another chain, of products, a negation, a concatenation and a sum.
"""

import sys

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

TINY, DEVICE = "--tiny" in sys.argv, "cuda" if torch.cuda.is_available() else "cpu"
LAYERS, WIDTH, HEADS, GROUPS, HIDDEN, VOCABULARY = (2, 64, 4, 2, 128, 256) if TINY else (6, 1024, 16, 8, 3072, 32768)
BATCH, PROMPT, DECODED, SIZE = (2, 16, 8, WIDTH // HEADS) if TINY else (4, 1024, 16, WIDTH // HEADS)


class RMSNorm(nn.RMSNorm):
    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_mlp = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * SIZE), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.register_buffer("cache", torch.zeros(2, BATCH, GROUPS, PROMPT + DECODED, SIZE))

    def forward(self, x, place, mask, cos, sin):
        heads = self.qkv(self.norm(x)).unflatten(-1, (-1, SIZE)).transpose(1, 2)
        q, k, v = heads.split((HEADS, GROUPS, GROUPS), dim=1)
        q, k = (y * cos + torch.cat((-y[..., SIZE // 2 :], y[..., : SIZE // 2]), -1) * sin for y in (q, k))
        k, v = self.cache.index_copy_(3, place, torch.stack((k, v))).repeat_interleave(HEADS // GROUPS, dim=2)
        x = x + self.out(scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))
        return x + self.down(silu(self.gate(y := self.norm_mlp(x))) * self.up(y))


class Decoder(nn.ModuleDict):
    def forward(self, tokens, place, angles):
        x, mask = self.embed(tokens), torch.arange(PROMPT + DECODED, device=DEVICE) <= place[:, None]
        for layer in self.layers:
            x = layer(x, place, mask, angles[place].cos().to(x), angles[place].sin().to(x))
        return self.head(self.norm(x[:, -1:])).argmax(-1)


parts = {"embed": nn.Embedding(VOCABULARY, WIDTH), "layers": nn.ModuleList(Layer() for _ in range(LAYERS))}
model = Decoder({**parts, "norm": RMSNorm(WIDTH), "head": nn.Linear(WIDTH, VOCABULARY)})
model = model.to(DEVICE, torch.bfloat16).requires_grad_(False)
step = torch.compile(model, dynamic=False) if "--compile" in sys.argv else model
tokens, places = torch.zeros(BATCH, PROMPT, dtype=torch.long), torch.arange(PROMPT + DECODED)
angles = places[:, None] / 1e4 ** (torch.arange(SIZE) % (SIZE // 2) * 2 / SIZE)
tokens, places, angles = (x.to(DEVICE) for x in (tokens, places, angles))
for place in places.split((PROMPT, *[1] * DECODED)):
    tokens = step(tokens, place, angles)
