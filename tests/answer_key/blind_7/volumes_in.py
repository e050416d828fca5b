"""Filtering of volumes from pinned memory. a: each is uploaded before its filter runs, b: the next one beside the filter."""

import torch

CHUNKS, SIDE = 6, 160


def build(form):
    host = [torch.randn(1, 4, SIDE, SIDE, SIDE).half().pin_memory() for _ in range(CHUNKS)]
    filters = (torch.randn(4, 4, 5, 5, 5, device="cuda") * 0.1).half()
    places = [torch.empty_like(host[0], device="cuda") for _ in range(2)]
    up, main = torch.cuda.Stream(), torch.cuda.current_stream()
    there, free = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))

    @torch.no_grad()
    def step(i):
        kept = []
        for number, volume in enumerate(host):
            place, slot = places[number % 2], number % 2
            if form == "a":
                place.copy_(volume, non_blocking=True)
            else:
                up.wait_event(free[slot])
                with torch.cuda.stream(up):
                    place.copy_(volume, non_blocking=True)
                    there[slot].record()
                main.wait_event(there[slot])
            kept.append(torch.conv3d(place, filters, padding=2).amax())
            free[slot].record(main)
        return kept

    return step
