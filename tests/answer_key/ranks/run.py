"""Run the programs of cases.toml on two GPUs under nsys, one capture each, within a limit of time.

    python tests/answer_key/ranks/run.py --out FOLDER [--seconds 200] [--only REGEX]
    RANK=0 WORLD_SIZE=2 … python tests/answer_key/ranks/run.py --case NAME [--device cpu]

The second form is one rank of one program; without a GPU, ranks talk by gloo, which tests the programs alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CASES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))
LAYERS, STEPS, LIMIT_S = 4, 12, 40
NSYS = ["profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true"]


def rank(case: dict[str, Any], device: str) -> None:
    """Run one rank of a program."""
    import torch
    import torch.distributed as dist
    from torch import nn

    on_gpu = device == "cuda"
    number = int(os.environ["RANK"])
    if on_gpu:
        torch.cuda.set_device(number)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    size, rows = (4096, 4096) if on_gpu else (16, 8)
    mine = number == case.get("rank")
    rows = int(rows * case["rows"]) if mine and "rows" in case else rows
    layers = nn.ModuleList(nn.Linear(size, size) for _ in range(LAYERS)).to(device)
    model: Any = layers
    x = torch.randn(rows, size, device=device)
    if case["kind"] == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for layer in (*layers, model):
            fully_shard(layer)
    reducers = list(layers.parameters()) if case["kind"] in ("ddp", "sp") else []

    def spin(ns: int) -> None:
        if on_gpu:
            torch.cuda._sleep(int(ns * 1.7))  # cycles at about 1.7 GHz
        else:
            time.sleep(ns / 1e9)

    def forward(y: Any) -> Any:
        for at, layer in enumerate(layers):
            if on_gpu:
                torch.cuda.nvtx.range_push(f"layer.{at}")
            y = layer(y).relu()
            if mine and at == case.get("layer"):
                spin(case["ns"])
            if case["kind"] == "tp":
                dist.all_reduce(y.data)
            elif case["kind"] == "sp":
                parts = y.detach()[: y.shape[0] // 2 * 2].contiguous()
                dist.all_to_all_single(torch.empty_like(parts), parts) if on_gpu else dist.all_reduce(parts)
            elif case["kind"] == "pp" and at == LAYERS - 1:
                dist.send(y.detach(), 1) if number == 0 else dist.recv(y.data, 0)
            if on_gpu:
                torch.cuda.nvtx.range_pop()
        return y

    for _ in range(STEPS):
        if mine and case["cause"] == "host":
            time.sleep(case["ns"] / 1e9)
        forward(x).square().mean().backward()
        for parameter in reducers:
            pieces = 8 if case["cause"] == "small_buckets" else 1
            for piece in parameter.grad.view(-1).chunk(pieces):
                dist.all_reduce(piece)
        for parameter in layers.parameters():
            parameter.grad = None
        loss = torch.ones(1, device=device)
        dist.all_reduce(loss)
        loss.item()
    dist.destroy_process_group()


def capture(name: str, case: dict[str, Any], out: Path, nsys: str) -> str:
    """Capture both ranks of a program; return what failed."""
    out.mkdir(parents=True, exist_ok=True)
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", str(Path(__file__)), "--case", name]
    env = os.environ | {"NCCL_NVLS_ENABLE": "0"} | case.get("env", {})
    stem = out / "timeline"
    export = ["export", "--type", "sqlite", "--include-blobs=true", "--force-overwrite=true", "-o", f"{stem}.sqlite"]
    for command in ([nsys, *NSYS, "-o", str(stem), sys.executable, *words], [nsys, *export, f"{stem}.nsys-rep"]):
        try:
            done = subprocess.run(command, env=env, timeout=LIMIT_S, capture_output=True)
        except subprocess.TimeoutExpired:
            return f"{command[1]} took over {LIMIT_S} s"
        if done.returncode:
            return f"{command[1]}: {done.stderr.decode(errors='replace')[-300:]}"
    return ""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=200, help="start no further program after so many seconds")
    parser.add_argument("--nsys", default="nsys")
    parser.add_argument("--case")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.case:
        rank(CASES[options.case], options.device)
        return 0
    if options.out is None:
        parser.error("--out names the folder of the captures")
    started = time.monotonic()
    for name, case in CASES.items():
        if re.search(options.only, name) and time.monotonic() - started < options.seconds:
            failed = capture(name, case, options.out / name, options.nsys)
            print(f"{time.monotonic() - started:6.1f} s {name} {failed or 'done'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
