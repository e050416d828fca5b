"""Build, time and capture a set of kernels on a GPU: `python tests/answer_key/kernels/capture.py kernels_3 --out DIR`.

One call does all, in at most SECONDS: bare times first, then the default metrics of both forms, then all metrics, a few
kernels at a time on each GPU, as long as the seconds last. What fails is tried again, one kernel at a time. DIR gets
`times.csv` and `captures/{default,full}/`, which are committed. The sets from kernels_2 on share its `main.cu`.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from harness.profile import argv, scrub  # noqa: E402 - as the path has just been set
from harness.profile.exports import RATIO  # noqa: E402

MAIN = HERE.parent / "kernels_2"
GROUPS = ("memory", "sync", "compute", "product", "library", "trap", "clean")
HEADER = "name,cause,also,slow_us,slow_p10,slow_p90,fixed_us,fixed_p10,fixed_p90,rounds,difference,won_low,won_high\n"
SECONDS, EACH = 225, 15  # of the whole call; the most for one kernel in one step
EXPORTING = 25  # seconds, after the last capture


def run(words: list[str], seconds: float, env: dict[str, str] | None = None) -> str:
    """Return what a command prints, '' if it fails or takes longer; then say so and end its children too."""
    said = " ".join(words)[:120]
    try:
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
        ) as process:
            try:
                out, err = process.communicate(timeout=max(seconds, 1))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                print(f"{said}: more than {seconds:.0f} s", flush=True)
                return ""
    except OSError as error:
        print(f"{said}: {error}", flush=True)
        return ""
    if process.returncode:
        print(f"{said}: {process.returncode}: {err[-800:]}{out[-400:]}", flush=True)
        return ""
    return out


class Gpus:
    """The GPUs of this call, lent to one process at a time; ncu locks the folder TMPDIR, so each has its own."""

    def __init__(self, names: list[str], out: Path) -> None:
        self.free: queue.Queue[dict[str, str]] = queue.Queue()
        self.count = len(names)
        for name in names:
            folder = out / f"tmp{name}"
            folder.mkdir(exist_ok=True)
            self.free.put({**os.environ, "CUDA_VISIBLE_DEVICES": name, "TMPDIR": str(folder)})

    @contextmanager
    def one(self) -> Iterator[dict[str, str]]:
        env = self.free.get()
        try:
            yield env
        finally:
            self.free.put(env)


def build(name: str, arch: str, out: Path) -> Path:
    """Return the program of a set, compiled for `arch`, such as sm_90, one file a core, or what --build-only left.

    Products of warp groups (WARP_GROUPS) need sm_90a.
    """
    program, sources = out / f"{name}-{arch}", [MAIN / "main.cu", *sorted((HERE.parent / name).glob("*.cu"))]
    if program.is_file():
        return program
    sources = list({path.resolve(): path for path in sources}.values())
    objects = [out / f"{path.stem}-{arch}.o" for path in sources]
    code = f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}"
    words = ["nvcc", "-O3", "-std=c++17", "-lineinfo", code, f"-I{MAIN}", "-diag-suppress", "177"]
    words += ["-DWARP_GROUPS"] * arch.endswith("a")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [[*words, "-c", str(a), "-o", str(b)] for a, b in zip(sources, objects, strict=True)]
        list(pool.map(lambda job: run(job, SECONDS), jobs))
    run(["nvcc", code, *map(str, objects), "-o", str(program), "-ldl"], SECONDS)
    return program


def captured(
    program: list[str], names: list[str], options: list[str], report: Path, ends: float, gpus: Gpus
) -> list[Path]:
    """Count the kernels of these names, and return the reports: `report`, or one for each kernel if that fails."""
    window = ["--nvtx", "--profile-from-start", "off", "--clock-control", "none", "--force-overwrite"]
    with gpus.one() as env:
        if ends - time.monotonic() < 5:
            print(f"{report.stem}: no time is left", flush=True)
            return []
        words = ["ncu", *window, *options, "--export", str(report), *program, *names]
        if run(words, min(EACH * len(names), ends - time.monotonic()), env) and report.is_file():
            return [report]
    report.unlink(missing_ok=True)
    if len(names) == 1:
        return []
    alone = [captured(program, [one], options, report.with_stem(f"{report.stem}-{one}"), ends, gpus) for one in names]
    return [one for some in alone for one in some]


def timed(program: Path, names: list[str], ends: float, gpus: Gpus) -> str:
    """Return the lines of times.csv of these kernels; after a crash, each has its own process: it costs no other."""
    with gpus.one() as env:
        lines = run([str(program), "--time", *names], min(EACH * len(names), ends - time.monotonic()), env)
    return lines if lines or len(names) == 1 else "".join(timed(program, [one], ends, gpus) for one in names)


def export(reports: list[Path], page: str, folder: Path, options: list[str]) -> None:
    """Write one page of all reports as one compressed table: the columns of the first, and rows from each."""
    header: list[str] = []
    rows: list[list[str]] = []
    words = ["--csv", "--page", page.removeprefix("ncu_").replace("ratios", "raw"), *options]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = list(pool.map(lambda report: run(["ncu", "--import", str(report), *words], 60), reports))
    for text in texts:
        table = list(csv.reader(text[text.find('"ID"') :].splitlines()))
        if not table or "ID" not in table[0]:
            continue
        columns, units = table[0], int(len(table) > 1 and not table[1][0])
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


def exported(reports: list[Path], folder: Path, metrics: str) -> None:
    """Write the pages of one list of metrics."""
    folder.mkdir(parents=True, exist_ok=True)
    base = ["--print-units", "base"]
    if folder.name == "full":
        export(reports, "ncu_raw", folder, base)
        return
    counts = [one for one in metrics.split(",") if not RATIO.search(one)]
    ratios = [one for one in metrics.split(",") if RATIO.search(one)]
    export(reports, "ncu_raw", folder, [*base, "--metrics", ",".join(counts)])
    export(reports, "ncu_ratios", folder, ["--metrics", ",".join(ratios)])
    manifest(folder)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if no capture was made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="a set from kernels_2 on, or kernels_clean")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--gpus", default=os.environ.get("CUDA_VISIBLE_DEVICES", "0"), help="for example 0,1")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=GROUPS)
    parser.add_argument("--tiers", nargs="*", choices=("default", "full"), default=("default", "full"))
    parser.add_argument("--few", type=int, default=6, help="kernels of one process")
    parser.add_argument("--slow", action="store_true", help="capture no fixed forms, which takes half of the time")
    parser.add_argument("--build-only", action="store_true")
    chosen = parser.parse_args(arguments)
    ends, out = time.monotonic() + chosen.seconds, chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    program = build(chosen.name, chosen.arch, out)
    print(f"built: {ends - time.monotonic():.0f} s left", flush=True)
    if chosen.build_only or not program.is_file():
        return int(not program.is_file())
    all_names = [one for group in chosen.groups for one in run([str(program), "--list", group], 20).split()]
    processes = -(-len(all_names) // chosen.few)
    some = [all_names[at::processes] for at in range(processes)]  # each has kernels of all groups: any may time out
    shown = [str(program), "--slow" if chosen.slow else "--run"]
    gpus = Gpus(chosen.gpus.split(","), out)
    digits = chosen.arch.removeprefix("sm_").rstrip("a")
    metrics = argv.metrics_for(f"{digits[:-1]}.{digits[-1]}")
    made = 0
    with ThreadPoolExecutor(gpus.count) as pool:
        text = HEADER + "".join(pool.map(lambda names: timed(program, names, ends, gpus), some))
        (out / "times.csv").write_text(text, encoding="utf-8")
        print(f"timed {text.count(chr(10)) - 1}: {ends - time.monotonic():.0f} s left", flush=True)
        good = {line.split(",", 1)[0] for line in text.splitlines()[1:]}
        some = [those for names in some if (those := [one for one in names if one in good])]
        options = {"default": ["--metrics", metrics], "full": ["--set", "full"]}
        jobs = {
            tier: [
                pool.submit(captured, shown, names, words, out / f"{tier}-{place}.ncu-rep", ends - EXPORTING, gpus)
                for place, names in enumerate(some)
            ]
            for tier, words in options.items()
            if tier in chosen.tiers
        }
        for tier, those in jobs.items():  # one tier is exported while the GPUs count the next
            reports = [report for job in those for report in job.result()]
            print(f"{tier}: {len(reports)} reports, {ends - time.monotonic():.0f} s left", flush=True)
            if reports:
                exported(reports, out / "captures" / tier, metrics)
                made += 1
    return int(not made)


if __name__ == "__main__":
    sys.exit(main())
