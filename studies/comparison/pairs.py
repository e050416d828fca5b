"""Bisect real pairs whose guilty change is known, and say how often the bisection names it.

    python -m studies.comparison.pairs FOLDER [PAIR…]    write FOLDER/tables/bisect.csv

Each pair is some changes of which one is guilty, or commits of this repository. The times of algorithm choices were
recorded on a GPU (FOLDER/flags.csv.xz); their seven other changes change nothing. Flags of nvcc and versions of Triton
are compiled here, and the census decides: that needs nvcc and NVIDIA's disassembler.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness import bisect

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
COMPILED = f"{sys.executable} {HERE / 'compiled.py'}"
TRITON = f"TRITON_CACHE_DIR=$OUT/cache {sys.executable} {HERE / 'compiled_triton.py'} # $OUT"
CHAINS = (
    "tf32 off", "math attention", "efficient attention", "split product", "strided input", "sync each loop",
)  # fmt: skip


def recorded(folder: Path) -> list[tuple[str, str, str, str, str]]:
    """Return name, GOOD, BAD, command and guilty change of each chain with recorded times."""
    table = folder / "flags.csv.xz"
    guilty = pd.read_csv(table).groupby("chain")["guilty"].first()
    good, bad = (" ".join(f"C{number}={word}" for number in range(1, 9)) for word in ("good", "bad"))
    return [
        (
            chain, good, bad, f"{sys.executable} {HERE / 'recorded.py'} {table.resolve()} '{chain}' # $OUT",
            f"C{guilty[chain]}=good → C{guilty[chain]}=bad",
        )
        for chain in CHAINS
    ]  # fmt: skip


def compiled() -> list[tuple[str, str, str, str, str]]:
    """Return the same of flags of nvcc, versions of Triton and commits of this repository."""

    def source(name: str) -> str:
        return f"{COMPILED} {name} # $OUT"

    words = "V1={0} V2={0} NVCC_FLAGS={1} V3={0} V4={0}"
    flags = [
        ("nvcc -G", "-lineinfo", "-G", f"{ROOT}/kernels/gelu/v01_naive.cu"),
        ("nvcc without -use_fast_math", "-use_fast_math", "-lineinfo", f"{ROOT}/kernels/softmax/v01_separate.cu"),
    ]
    found = [
        (
            name,
            words.format("old", good),
            words.format("new", bad),
            source(path),
            f"NVCC_FLAGS={good} → NVCC_FLAGS={bad}",
        )
        for name, good, bad, path in flags
    ]
    triton = "WARPS={} V1={} triton=={} V2={}"
    found.append(
        ("older Triton", triton.format(4, "old", "3.6.0", "old"), triton.format(4, "new", "3.3.1", "new"), TRITON,
         "triton==3.6.0 → triton==3.3.1")
    )  # fmt: skip
    path = "kernels/softmax/v03_causal.cu"
    return [*found, ("softmax v03, our history", "1abfc8b6", "ab47c7df", source(path), "5dc10609 v03 overlaps")]


def named(name: str, good: str, bad: str, command: str, guilty: str, out: Path) -> dict[str, object]:
    """Return a row of bisect.csv: the guilty change, what the bisection names, and what it takes."""
    place = out / name.replace(" ", "-").replace(",", "")
    words = ["--out", str(place), "--good", good, "--bad", bad, "--cmd", command]
    done = subprocess.run(
        [sys.executable, "-m", bisect.__name__, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    said = [line for line in done.stdout.splitlines() if line.startswith(("guilty:", "all other"))]
    first = said[0].removeprefix("guilty: ") if said else done.stderr.strip().splitlines()[-1]
    return {
        "pair": name, "guilty": guilty, "named": first, "right": first.startswith(guilty),
        "others": "; ".join(said[1:]), "comparisons": sum(" → " in line for line in done.stderr.splitlines()),
        "decided_by": "recorded times" if "recorded.py" in command else "census",
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Bisect every pair, or those that are named, and write the table."""
    if {"-h", "--help"} & set(sys.argv):
        print("usage: python -m studies.comparison.pairs FOLDER [NAME ...]")
        return 0
    folder, *names = list(arguments or sys.argv[1:])
    to = Path(folder) / "tables" / "bisect.csv"
    rows = {} if not names else {row["pair"]: row for row in pd.read_csv(to).to_dict("records")}
    for pair in [*recorded(Path(folder)), *compiled()]:
        if not names or pair[0] in names:
            rows[pair[0]] = named(*pair, ROOT / "build" / "bisect")
    table = pd.DataFrame(list(rows.values()))
    table.to_csv(to, index=False, lineterminator="\n")
    print(table.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
