"""Write a sweep.csv in the form of studies.sweep.measure, without a GPU: its times follow a rule that tests check."""

import itertools
from collections.abc import Mapping, Sequence

from analysis.formats.sweep import SWEEP_ROWS

GPU = "NVIDIA H200"


def row(op: str, variant: str, macros: Mapping[str, int], dtype: str = "bf16", **more: object) -> dict[str, object]:
    """Return a timed row of 10 µs, as fast as the default; `more` replaces fields."""
    values = "x".join(map(str, macros.values()))
    start: dict[str, object] = dict.fromkeys(SWEEP_ROWS.names, "") | {
        "op": op, "variant": variant, "source": f"{op}/{variant}.cu", "default": 0, "dtype": dtype,
        "macros": " ".join(f"{name}={value}" for name, value in macros.items()),
        "shape_name": "large", "shape": "8192x3072", "range": f"sweep/{op}/{variant}/{dtype}/large/{values}",
        "gpu": GPU, "fingerprint": "0123456789abcdef", "verdict": "timed", "kernel": "k", "registers": 32,
        "shared_bytes": 0, "block_threads": 256, "occupancy_theoretical_frac": 1, "limiter": "warps",
        "grid_blocks": 12288, "blocks_per_sm": 8, "waves": 11.64, "tail_frac": 0.36, "samples": 30,
        "launches_per_sample": 16, "bench_time_p5_ns": 9900, "bench_time_p50_ns": 10000, "bench_time_p95_ns": 10100,
        "minimum_bytes": 10**8, "versus_default_p5": 0.99, "versus_default_p50": 1, "versus_default_p95": 1.01,
    }  # fmt: skip
    return start | more


def grid(op: str, variant: str, choices: Mapping[str, Sequence[int]], dtype: str = "bf16") -> list[dict[str, object]]:
    """Return a row for every combination. The first values are the default; each step from the second adds 3 %."""
    found = []
    for values in itertools.product(*choices.values()):
        steps = sum(abs(list(of).index(value) - 1) for of, value in zip(choices.values(), values, strict=True))
        gain = 1.03 ** (len(choices) - steps)
        found.append(
            row(
                op, variant, dict(zip(choices, values, strict=True)), dtype,
                default=int(all(of[0] == value for of, value in zip(choices.values(), values, strict=True))),
                bench_time_p50_ns=round(10_000 / gain), bench_time_p5_ns=round(9_950 / gain),
                bench_time_p95_ns=round(10_050 / gain), versus_default_p50=round(gain, 5),
                versus_default_p5=round(gain * 0.995, 5), versus_default_p95=round(gain * 1.005, 5),
            )
        )  # fmt: skip
    return found


def text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the text of the file."""
    return SWEEP_ROWS.text(rows)
