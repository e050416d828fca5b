"""Print what tests/gpu/decode_variants.sh measured: a table of times, and the phases of each variant."""

from __future__ import annotations

import csv
import statistics
import sys
from pathlib import Path


def _same(texts: list[str], other: list[str]) -> int:
    """Return how many tokens two texts have in common at their beginnings."""
    return next((i for i, (a, b) in enumerate(zip(texts, other, strict=False)) if a != b), min(len(texts), len(other)))


def _text(out: Path, launcher: str, name: str) -> list[str]:
    path = out / f"{launcher}.{name}.text"
    return path.read_text("utf-8").split() if path.is_file() else []


def show_times(out: Path) -> None:
    """Print median, least and largest time of a token, and for how many tokens the text is the first variant's."""
    rows = list(csv.DictReader((out / "times.csv").read_text("utf-8").splitlines()))
    first = rows[0]["variant"]
    written = ["launcher,variant,median_us,least_us,most_us,processes,same_tokens,tokens"]
    for launcher in dict.fromkeys(row["launcher"] for row in rows):
        for name in dict.fromkeys(row["variant"] for row in rows):
            times = [
                float(row["token_us"])
                for row in rows
                if (row["launcher"], row["variant"]) == (launcher, name) and row["token_us"] != "nan"
            ]
            if not any((row["launcher"], row["variant"]) == (launcher, name) for row in rows):
                continue
            said = f"{statistics.median(times):.1f},{min(times):.1f},{max(times):.1f}" if times else ",,"
            text, expected = _text(out, launcher, name), _text(out, "persistent", first)
            written.append(f"{launcher},{name},{said},{len(times)},{_same(text, expected)},{len(expected)}")
    (out / "variants.csv").write_text("\n".join(written) + "\n", encoding="utf-8")
    for line in written:
        print("  ".join(f"{cell:>12}" for cell in line.split(",")))


def show_phases(out: Path) -> None:
    """Print work/tail/exchange of each phase in us a token, a column for each variant."""
    tables = {
        path.name.removesuffix(".phases.csv"): {
            row["phase"]: row for row in csv.DictReader(path.open(encoding="utf-8"))
        }
        for path in sorted(out.glob("*.phases.csv"))
    }
    if not tables:
        return
    print(f"{'work/tail/exchange in us':>28}" + "".join(f"{name:>20}" for name in tables))
    for phase in next(iter(tables.values())):
        cells = (
            "/".join(f"{float(rows[phase][kind]) / 1000:.1f}" for kind in ("work_ns", "tail_ns", "exchange_ns"))
            for rows in tables.values()
        )
        print(f"{phase:>28}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    show_times(Path(sys.argv[1]))
    show_phases(Path(sys.argv[1]))
