"""Compile the softmax rungs for a Tesla T4, inspect their code, and predict their times there. Nobody has measured one.

    python -m studies.softmax.turing      exit: 0 as declared, 1 a kernel is not, 127 nvcc or cuobjdump is missing

A prediction moves a time of the committed H200 run to the T4. Memory alone bounds a rung that reaches REACHED of the
H200's roof, so its time is bytes over bandwidth. For others the H200's time, by SMs and clocks, adds to the slow end.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from tabulate import tabulate

from analysis.formats.console import run_program
from analysis.hardware.devices import Device, architecture, find_device
from kernels import build, census, objects
from kernels.registry import ops
from studies import runs

SM = 75
SHAPE = "b8_t1024"
RUNGS = {  # rung -> its dtype on a T4, which has no bfloat16; how its rows are joined
    "v01_separate": ("float32", "shared"),
    "v02_fused": ("float32", "shuffles"),
    "v06_block": ("float32", "shared"),
    "v07_warp": ("float32", "shuffles"),
    "v03_causal": ("float32", "shuffles"),
    "v05_early": ("float32", "shuffles"),
    "v08_half": ("float16", "shuffles"),
}
# Assumptions: a copy reaches between these shares of the datasheet's bandwidth (an H200's 0.80; a T4 of 70 W lowers its
# clocks), and a rung at 0.85 of the roof on the H200 waits for memory alone.
SLOWEST, LIKELY, REACHED = 0.65, 0.80, 0.85


class Predicted(NamedTuple):
    """Times of a rung on a T4 in ns, at SHAPE; `bytes` is what it moves."""

    rung: str
    dtype: str
    bytes: int
    low_ns: float
    likely_ns: float
    high_ns: float


def _speed(gpu: Device) -> float:
    """Return SMs times clock, from the FP32 rate."""
    return (gpu.fp32_flop_per_s or 0) / architecture(gpu.cc)["fp32_lanes"]


def predict(ladder: pd.DataFrame, measured_on: Device, target: Device) -> list[Predicted]:
    """Return the times on `target` of the rungs that a ladder has, slowest idea first."""
    softmax = ops()["softmax"]
    rows = ladder[(ladder["op"] == "softmax") & (ladder["dtype"] == "fp32") & (ladder["shape_name"] == SHAPE)]
    times = rows.set_index("variant")
    found = []
    for rung, (dtype, _) in RUNGS.items():
        moved = softmax.variants[rung].bytes_model(softmax.shapes[SHAPE], dtype)
        of = times.loc["v03_causal" if rung == "v08_half" else rung]
        roof = of["predicted_bytes"] / measured_on.dram_bytes_per_s * 1e9 / LIKELY
        waits_for_memory = roof / of["isolated_time_p50_ns"] >= REACHED
        beside = 0 if waits_for_memory else of["isolated_time_p50_ns"] * _speed(measured_on) / _speed(target)
        at_roof = moved / target.dram_bytes_per_s * 1e9
        likely = max(at_roof / LIKELY, beside)
        found.append(Predicted(rung, dtype, moved, at_roof, likely, at_roof / SLOWEST + beside))
    return found


def inspect(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return what the code for a T4 has that it should not, or lacks, as sentences; empty if it is as declared."""
    wrong = []
    for row in rows:
        rung, name = row["source"].removesuffix(".cu"), f"{row['source']}: {row['kernel']}"
        if int(row["spill_bytes"]) or int(row["local_instructions"]):
            wrong.append(f"{name} uses local memory")
        if row["tensor"] or row["bulk"] or row["async_copy"]:
            wrong.append(f"{name} has an instruction that a T4 lacks or that a softmax needs not")
        if int(row["shared_bytes"]) > 48 << 10:
            wrong.append(f"{name} declares more shared memory than a block gets")
        if census.occupancy(SM, min(int(row["max_threads"]), 1024), int(row["registers"]), 0) is None:
            wrong.append(f"{name} does not fit into an SM of a T4")
        if rung == "v06_block" and not (row["shared_load"] and row["shared_store"]):
            wrong.append(f"{name} keeps no row in shared memory")
    for rung, (_, how) in RUNGS.items():
        own = [row for row in rows if row["source"] == f"{rung}.cu"]
        if not own:
            wrong.append(f"{rung}.cu was not compiled for sm_{SM}")
        elif how == "shuffles" and not any(int(row["shuffles"]) for row in own):
            wrong.append(f"{rung}.cu joins its rows by shuffles, and has none for sm_{SM}")
    return wrong


def compiled() -> list[census.Row]:
    """Return the census of the softmax for a T4. Raises: BuildError, one sentence, if a source does not compile."""
    nvcc = build.find_nvcc()
    lacking = [name for name in census.TOOLS if census.tool(name) is None]
    if nvcc is None or lacking:
        raise build.BuildError(
            f"Missing: {', '.join([*([] if nvcc else ['nvcc']), *lacking])}. Install the CUDA toolkit."
        )
    version = objects.nvcc_version(nvcc)
    jobs = objects.compile_all(nvcc, build.sources("softmax"), (SM,), lambda one: census.rows_of(one, version))
    return [row for rows in jobs for row in rows]


def text() -> str:
    """Return the table of predictions, from the committed ladder of the H200."""
    on, target = find_device("NVIDIA H200"), find_device("Tesla T4")
    folder = next((one.folder("ladder") for one in runs.read() if one.gpu == "NVIDIA H200"), None)
    if on is None or target is None or folder is None:
        return ""
    rows: list[list[Any]] = [
        [f"`{one.rung}`", one.dtype, f"{one.bytes / 1e6:,.1f} MB", f"{one.likely_ns / 1e6:.2f} ms",
         f"{one.low_ns / 1e6:.2f} – {one.high_ns / 1e6:.2f} ms", "never"]
        for one in predict(pd.read_csv(folder / "tables" / "ladder.csv.xz"), on, target)
    ]  # fmt: skip
    headers = ["rung", "dtype", "DRAM bytes", "predicted", "interval", "measured"]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    argparse.ArgumentParser(prog="python -m studies.softmax.turing", description=__doc__).parse_args(arguments)
    print(f"Tesla T4, softmax {SHAPE}\n{text()}\n")
    try:
        rows = compiled()
    except build.BuildError as error:
        print(error, file=sys.stderr)
        return 127
    wrong = inspect(rows)
    print("\n".join(wrong) or f"sm_{SM}: {len(rows)} kernels are as declared")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(run_program(main))
