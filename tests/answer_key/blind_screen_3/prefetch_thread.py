"""Training of a wide net whose batches a thread uploads meanwhile. a: from pageable memory, b: pinned (wins nothing)."""

import queue
import threading

import torch
from torch import nn

B, C, L = 8192, 4096, 4


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.ReLU()) for _ in range(L))).cuda().bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    batches = [torch.randn(B, C // 4).bfloat16() for _ in range(4)]
    if form == "b":
        batches = [batch.pin_memory() for batch in batches]
    ready, stream = queue.Queue(2), torch.cuda.Stream()

    def upload():
        at = 0
        while True:
            with torch.cuda.stream(stream):
                batch = batches[at % 4].to("cuda", non_blocking=True)
                done = stream.record_event()
            ready.put((batch, done))
            at += 1

    threading.Thread(target=upload, daemon=True).start()

    def step(i):
        batch, done = ready.get()
        torch.cuda.current_stream().wait_event(done)
        batch.record_stream(torch.cuda.current_stream())
        net(batch.repeat(1, 4)).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
