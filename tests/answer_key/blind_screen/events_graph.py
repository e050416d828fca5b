"""Scores for a stream of events that the host parses from JSON. a: eager, b: the model is a graph (wins nothing)."""

import json

import torch
from torch import nn

N, C = 2000, 256


def build(form):
    model = nn.Sequential(nn.Linear(8, C), nn.ReLU(), nn.Linear(C, 1)).cuda()
    event = {"id": 17, "place": "gate 4", "values": [0.5] * 8, "tags": ["a", "b"], "at": 1.7e9}
    lines = [json.dumps(event | {"id": number}) for number in range(N)]
    x = torch.zeros(N, 8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        model(x)
        torch.cuda.synchronize()
        if form == "b":
            with torch.cuda.graph(graph):
                model(x)

    @torch.no_grad()
    def step(i):
        rows = [json.loads(line)["values"] for line in lines]
        x.copy_(torch.tensor(rows))
        graph.replay() if form == "b" else model(x)

    return step
