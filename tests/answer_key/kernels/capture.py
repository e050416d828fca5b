"""Build, time and capture a set of kernels on a GPU: `python tests/answer_key/kernels/capture.py kernels_3 --out DIR`.

One call does all, in at most SECONDS: bare times first, then the default metrics of both forms, then all metrics, a group
of kernels at a time, as long as the seconds last. DIR gets `times.csv` and `captures/{default,full}/`, which are committed.
The sets from kernels_2 on share its `main.cu`. It reports a step that fails and continues with the next.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from harness.profile import argv, scrub  # noqa: E402 - as the path has just been set
from harness.profile.exports import RATIO  # noqa: E402

MAIN = HERE.parent / "kernels_2"
GROUPS = ("memory", "sync", "compute", "product", "library", "trap", "clean")
HEADER = "name,cause,also,slow_us,slow_p10,slow_p90,fixed_us,fixed_p10,fixed_p90,rounds,difference,won_low,won_high\n"
SECONDS, EACH = 225, 60  # of the whole call; the most for the bare times of one group


def run(words: list[str], seconds: float) -> str:
    """Return what a command prints, '' if it fails or takes longer; then say so."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=max(seconds, 1), check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        print(f"{' '.join(words)[:120]}: {error}", flush=True)
        return ""
    if done.returncode:
        print(f"{' '.join(words)[:120]}: {done.returncode}: {done.stderr[-800:]}{done.stdout[-400:]}", flush=True)
        return ""
    return done.stdout


def build(name: str, arch: str, out: Path) -> Path:
    """Return the program of a set, compiled for `arch`, such as sm_90, one file a core."""
    program, sources = out / f"{name}-{arch}", [MAIN / "main.cu", *sorted((HERE.parent / name).glob("*.cu"))]
    sources = list({path.resolve(): path for path in sources}.values())
    objects = [out / f"{path.stem}-{arch}.o" for path in sources]
    words = ["nvcc", "-O3", "-std=c++17", "-lineinfo", f"-arch={arch}", f"-I{MAIN}", "-diag-suppress", "177"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [[*words, "-c", str(a), "-o", str(b)] for a, b in zip(sources, objects, strict=True)]
        list(pool.map(lambda job: run(job, SECONDS), jobs))
    run(["nvcc", f"-arch={arch}", *map(str, objects), "-o", str(program), "-ldl"], SECONDS)
    return program


def captured(program: Path, names: list[str], options: list[str], report: Path, seconds: float) -> bool:
    """Return whether ncu counted the kernels of these names into `report`."""
    window = ["--nvtx", "--profile-from-start", "off", "--clock-control", "none", "--force-overwrite"]
    words = ["ncu", *window, *options, "--export", str(report), str(program), "--run", *names]
    return bool(run(words, seconds)) and report.is_file()


def export(reports: list[Path], page: str, folder: Path, options: list[str]) -> None:
    """Write one page of all reports as one compressed table: the columns of the first, and rows from each."""
    header: list[str] = []
    rows: list[list[str]] = []
    for report in reports:
        name = page.removeprefix("ncu_")
        text = run(["ncu", "--import", str(report), "--csv", "--page", name.replace("ratios", "raw"), *options], 60)
        table = list(csv.reader(text[text.find('"ID"') :].splitlines()))
        if not table or "ID" not in table[0]:
            continue
        columns, units = table[0], int(page != "ncu_details" and len(table) > 1 and not table[1][0])
        new = [one for one in columns if one not in header]
        header += new
        rows = [[*row, *[""] * len(new)] for row in rows]
        base = 1 + max((int(row[0]) for row in rows if row[0]), default=-1)
        for row in table[1 + (units if rows else 0) :]:
            cells = dict(zip(columns, row, strict=False))
            cells["ID"] = str(base + int(cells["ID"])) if cells["ID"] else ""
            rows.append([cells.get(one, "") for one in header])
    plain, kept = folder / "plain" / f"{page}.csv", folder / f"{page}.csv"
    plain.parent.mkdir(parents=True, exist_ok=True)
    with plain.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([header, *rows])
    scrub.copy([plain], folder)
    kept.with_suffix(".csv.xz").write_bytes(lzma.compress(kept.read_bytes(), preset=9))
    kept.unlink()
    plain.unlink()
    plain.parent.rmdir()


def manifest(folder: Path) -> None:
    """Write what GPU, driver and ncu the captures are of."""
    asked = run(["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader", "-i", "0"], 20)
    name, cc, driver = [one.strip() for one in (asked.splitlines() or [",,"])[0].split(",")]
    version = re.search(r"Version ([\d.]+)", run(["ncu", "--version"], 20))
    document = {
        "kind": "manifest", "schema_version": 1, "gpu": {"name": name, "compute_capability": cc},
        "driver": driver, "ncu": version[1] if version else None,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if no capture was made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="a set from kernels_2 on")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--build-only", action="store_true")
    chosen = parser.parse_args(arguments)
    begin, out = time.monotonic(), chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)

    def left() -> float:
        return float(chosen.seconds - (time.monotonic() - begin))

    program = build(chosen.name, chosen.arch, out)
    print(f"built: {left():.0f} s left", flush=True)
    if chosen.build_only or not program.is_file():
        return int(not program.is_file())
    names = {group: run([str(program), "--list", group], 20).split() for group in GROUPS}
    every = [one for group in GROUPS for one in names[group]]
    text = HEADER
    for some in names.values():  # after a crash, a process for each: one bad kernel costs no other
        text += run([str(program), "--time", *some], min(EACH, left())) or "".join(
            run([str(program), "--time", one], min(EACH / 4, left())) for one in some
        )
        (out / "times.csv").write_text(text, encoding="utf-8")
    good = {line.split(",", 1)[0] for line in text.splitlines()[1:]}
    print(f"timed {len(good)} of {len(every)}: {left():.0f} s left", flush=True)
    metrics = argv.metrics_for(f"{chosen.arch[3:-1]}.{chosen.arch[-1]}")
    made = 0
    for tier, options in (("default", ["--metrics", metrics]), ("full", ["--set", "full"])):
        folder, reports = out / "captures" / tier, []
        for group in GROUPS:
            some, report = [one for one in names[group] if one in good], out / f"{tier}-{group}.ncu-rep"
            if some and left() > 10 and captured(program, some, options, report, left()):
                reports.append(report)
            print(f"{tier} {group}: {len(some)} kernels, {left():.0f} s left", flush=True)
        if not reports:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        made += 1
        if tier == "default":
            counts = [one for one in metrics.split(",") if not RATIO.search(one)]
            ratios = [one for one in metrics.split(",") if RATIO.search(one)]
            export(reports, "ncu_raw", folder, ["--print-units", "base", "--metrics", ",".join(counts)])
            export(reports, "ncu_ratios", folder, ["--metrics", ",".join(ratios)])
            manifest(folder)
        else:
            export(reports, "ncu_raw", folder, [])
            export(reports, "ncu_details", folder, [])
    return int(not made)


if __name__ == "__main__":
    sys.exit(main())
