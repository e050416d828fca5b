"""Predict, and time, the sizes at which a square matmul of v08 (tiles of 128 x 128) loses a wave on this GPU.

    python -m kernels.matmul.waves [--out waves.csv]

An SM runs two tiles at a time, and a wave is what all SMs run at a time. The time jumps at a size that starts a new
wave with few tiles. A lecture shows this for 1792 -> 1793 on 108 SMs. Without a GPU, the program only predicts, for the
first GPU of reports/published.toml, and takes no --out.
"""

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernels.gpu import first_published

TILE = 128
BLOCKS = 2  # of v08 per SM: 256 threads of 126 registers
SIZES = (1408, 1409, 1792, 1793, 1920, 1921, 2048, 2049, 2176, 2177, 2304, 2305)
SAMPLES = 30


def tiles(n: int, tile: int = TILE) -> int:
    """Return the number of tiles of an (n, n) output, with those at the edge."""
    return (-(-n // tile)) ** 2


def waves(n: int, multiprocessors: int, tile: int = TILE) -> int:
    """Return the number of waves of an (n, n) output."""
    return -(-tiles(n, tile) // (BLOCKS * multiprocessors))


def steps(multiprocessors: int, up_to: int, tile: int = TILE) -> Iterator[tuple[int, float]]:
    """Yield (n, factor) up to a size: at n + 1 the predicted time is `factor` times that at n."""
    for n in range(tile, up_to + 1, tile):
        before, behind = (waves(size, multiprocessors, tile) for size in (n, n + 1))
        if behind > before:
            yield n, behind / before


def measure(n: int) -> list[float]:
    """Return the seconds of each of SAMPLES launches of v08 at (n, n, n)."""
    import torch

    from kernels.build import extension

    run = extension("matmul").v08_register_tile
    a, weight = (torch.randn(n, n, device="cuda") for _ in range(2))
    bias = torch.randn(n, device="cuda")
    run(a, weight, bias)
    pairs = []
    for _ in range(SAMPLES):
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda._sleep(300_000)
        pair[0].record()
        run(a, weight, bias)
        pair[1].record()
        pairs.append(pair)
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) / 1e3 for start, end in pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m kernels.matmul.waves", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the table there too, as CSV")
    options = parser.parse_args(arguments)
    import torch

    count = first_published().multiprocessors
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        count = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    elif options.out:
        print("error: --out keeps times, which need an NVIDIA GPU, and torch sees none: leave it out.", file=sys.stderr)
        return 2
    else:
        print(f"No NVIDIA GPU: nothing is timed, and the waves are those of {count} multiprocessors.", file=sys.stderr)
    rows = []
    for n in SIZES:
        row = {"n": n, "multiprocessors": count, "tiles": tiles(n), "waves": waves(n, count)}
        if on_gpu:
            times = measure(n)
            row["time_p50_ns"] = round(times[len(times) // 2] * 1e9)
        rows.append(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    print(text.getvalue(), end="")
    if options.out:
        options.out.write_text(text.getvalue(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
