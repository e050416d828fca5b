"""Capture and time the programs of cases.toml on the GPUs of one machine.

    python tests/answer_key/ranks/run.py capture --ranks 4 --out FOLDER [--only REGEX]
    python tests/answer_key/ranks/run.py time    --ranks 4 --out FOLDER [--only REGEX]
    python tests/answer_key/ranks/run.py all     --ranks 4 --out FOLDER [--seconds S]

One set of ranks runs all programs in turn: `capture` under one nsys, whose export is cut into one small export a
program, and `time` without nsys, both forms in turn. `all` does both, the blind ones first, starts no program after S
seconds, and goes on in another session if a program fails. Without a GPU (--device cpu), `time` tests the programs with gloo.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import time
import tomllib
import traceback
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CASES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))
WARM, STEPS, BLOCKS, IN_BLOCK = 3, 8, 8, 5
MARK, LIMIT_S = "key:", 30  # a program that takes longer ends its ranks
NSYS = ["profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "--cuda-graph-trace=node", "-f", "true"]
CUT = {  # what a cut export keeps: table, and the columns that say when
    "CUPTI_ACTIVITY_KIND_KERNEL": "start", "CUPTI_ACTIVITY_KIND_MEMCPY": "start", "CUPTI_ACTIVITY_KIND_MEMSET": "start",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start", "NVTX_EVENTS": "start",
}  # fmt: skip
WHOLE = (
    "NVTX_PAYLOAD_SCHEMA_ENTRIES", "NVTX_PAYLOAD_SCHEMAS", "TARGET_INFO_GPU", "META_DATA_EXPORT", "EXPORT_META_DATA",
    "ENUM_CUDA_MEMCPY_OPER", "ENUM_CUDA_MEM_KIND",
)  # fmt: skip
IDS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("demangledName", "shortName"), "CUPTI_ACTIVITY_KIND_RUNTIME": ("nameId",),
    "NVTX_EVENTS": ("textId",),
}  # fmt: skip


def cases(ranks: int, only: str) -> list[str]:
    """Return the programs for so many ranks; a program that repeats has a number behind its name."""
    found = []
    for name, case in CASES.items():
        if case.get("ranks", 2) == ranks and re.search(only, name):
            found += [f"{name}.{number}" for number in range(case.get("repeat", 1))]
    return sorted(found, key=lambda name: CASES[name.partition(".")[0]]["half"])  # blind ones first


# In a rank ---------------------------------------------------------------------------------------------------------


def rank(options: argparse.Namespace) -> None:
    """Run all programs as one rank."""
    import torch
    import torch.distributed as dist

    sys.path.insert(0, str(HERE))
    import programs

    number, size, on_gpu = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), options.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(number)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    machine = programs.Machine(number, size, on_gpu)
    store = dist.distributed_c10d._get_default_store()
    found: dict[str, Any] = {}
    started = options.out.parent / f"started-{options.what}-{size}.txt"  # no program is tried twice
    known = started.read_text(encoding="utf-8").split() if started.exists() else []
    dist.barrier()
    for name in [one for one in cases(size, options.only) if one not in known]:
        case = CASES[name.partition(".")[0]]
        if number == 0:
            store.set(f"{name} goes", str(int(time.time() < options.until)))
        if store.get(f"{name} goes") == b"0":
            break
        if number == 0:
            with started.open("a", encoding="utf-8") as stream:
                stream.write(f"{name}\n")
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        try:
            if options.what == "capture":
                _window(name, programs.Program(case, "a", machine))
            elif case["cause"] not in ("none", "first_step") or not on_gpu:
                forms = {form: programs.Program(case, form, machine) for form in "ab"}
                found[name] = _times(forms)
                if number == 0:
                    (options.out / f"times-{size}.json").write_text(json.dumps(found), encoding="utf-8")
                forms.clear()
        except Exception:  # the next program may run, if this one failed on all ranks
            traceback.print_exc()
        finally:
            forms = {}
            gc.collect()
            if on_gpu:
                torch.cuda.empty_cache()
        store.set(f"{name} ended {number}", "1")
        store.wait([f"{name} ended {one}" for one in range(size)], timedelta(seconds=LIMIT_S))
        faulthandler.cancel_dump_traceback_later()
        if number == 0:
            print(f"{time.monotonic():9.1f} {name}", flush=True)
    dist.destroy_process_group()


def _window(name: str, program: Any) -> None:
    """Run a program's steps in a range by its name; but for a late first step, warm up before."""
    import torch.distributed as dist

    machine = program.machine
    if program.case["cause"] == "first_step":  # warm up without what is late
        kept, program.first_ns = program.first_ns, 0
        _steps(program, WARM)
        program.first_ns = kept
    else:
        _steps(program, WARM)
    dist.barrier()
    machine.synchronise()
    machine.push(f"{MARK}{name}")
    _steps(program, STEPS)
    machine.pop()
    machine.synchronise()
    dist.barrier()


def _steps(program: Any, count: int) -> float:
    """Run steps; return the seconds of one."""
    program.machine.synchronise()
    begin = time.perf_counter()
    for _ in range(count):
        program.step()
    program.machine.synchronise()
    return (time.perf_counter() - begin) / max(count, 1)


def _times(forms: dict[str, Any]) -> dict[str, list[float]]:
    """Return the seconds of a step in each block of each form, of the slowest rank; blocks of the forms alternate."""
    import torch
    import torch.distributed as dist

    found: dict[str, list[float]] = {form: [] for form in forms}
    on_gpu = forms["a"].machine.on_gpu
    for program in forms.values():
        _steps(program, WARM if on_gpu else 0)
    for block in range(BLOCKS if on_gpu else 1):
        for form in sorted(forms, reverse=block % 2 == 1):
            dist.barrier()
            spent = torch.tensor(
                [_steps(forms[form], IN_BLOCK if on_gpu else 1)], dtype=torch.float64, device=forms[form].machine.device
            )
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            found[form].append(round(spent.item(), 9))
    return found


# Around the ranks --------------------------------------------------------------------------------------------------


def capture(options: argparse.Namespace) -> int:
    """Capture all programs in one session, and cut its export."""
    stem = options.out / f"session-{options.ranks}"
    export = ["export", "--type", "sqlite", "--include-blobs=true", "--force-overwrite=true"]
    commands = {
        "capture": [options.nsys, *NSYS, "-o", str(stem), *_launch(options)],
        "cut": [options.nsys, *export, "-o", f"{stem}.sqlite", f"{stem}.nsys-rep"],
    }
    for command in [commands[options.what]] if options.no_cut or options.what == "cut" else commands.values():
        begin = time.monotonic()
        code = subprocess.run(command, env=_environment()).returncode
        print(f"{time.monotonic() - begin:.1f} s, exit code {code}: {command[1]}", flush=True)
    return code if options.no_cut else cut_all(Path(f"{stem}.sqlite"), options.out)


def everything(options: argparse.Namespace) -> int:
    """Capture all programs, then time them, and cut the exports beside that; a failure ends one session of three."""
    begin, options.out = time.time(), options.out.resolve()
    me = [
        sys.executable,
        str(Path(__file__)),
        "--ranks",
        str(options.ranks),
        "--only",
        options.only,
        "--device",
        options.device,
    ]
    cuts = []
    for what, share in (("capture", 0.5), ("time", 1.0)):
        for number in range(3):
            started = options.out / f"started-{what}-{options.ranks}.txt"
            known = started.read_text(encoding="utf-8").split() if started.exists() else []
            until, out = begin + share * options.seconds, str(options.out / f"{what}{number}")
            if not set(cases(options.ranks, options.only)) - set(known) or time.time() > until:
                break
            more = ["--no-cut", "--nsys", options.nsys] if what == "capture" else []
            subprocess.run([*me, what, "--out", out, "--until", str(until), *more])
            if what == "capture":
                cuts.append(subprocess.Popen(["nice", *me, "cut", "--out", out, "--nsys", options.nsys]))
    return max(one.wait() for one in cuts)


def cut_all(session: Path, out: Path) -> int:
    """Write one export for each window of a session, NAME.sqlite; return 1 if it has no window."""
    windows = windows_of(session)
    names = list(windows)
    with ProcessPoolExecutor(min(len(names) or 1, os.cpu_count() or 1, 16)) as pool:
        list(pool.map(cut, [session] * len(names), [out / f"{one}.sqlite" for one in names], windows.values()))
    print(f"{len(names)} windows of {session.name}", flush=True)
    return 0 if names else 1


def windows_of(session: Path) -> dict[str, tuple[int, int]]:
    """Return begin and end of the window of each program: around the ranges of all ranks."""
    with contextlib.closing(sqlite3.connect(session)) as file:
        rows = file.execute(
            "SELECT coalesce(e.text, s.value) AS name, min(e.start), max(e.end) FROM NVTX_EVENTS e LEFT JOIN StringIds s ON "
            f"s.id = e.textId WHERE e.end NOTNULL AND coalesce(e.text, s.value) LIKE '{MARK}%' GROUP BY name ORDER BY 2"
        ).fetchall()
    return {name.removeprefix(MARK): (begin, end) for name, begin, end in rows}


def cut(session: Path, target: Path, window: tuple[int, int]) -> None:
    """Copy what happens in a window, and NCCL's calls that make communicators, without names of the machine."""
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(target)) as file:
        file.execute("ATTACH ? AS whole", (f"{session}",))
        have = {name for (name,) in file.execute("SELECT name FROM whole.sqlite_master WHERE type = 'table'")}
        for table in WHOLE:
            if table in have:
                file.execute(f"CREATE TABLE {table} AS SELECT * FROM whole.{table}")
        for table in filter(have.__contains__, CUT):
            own = f"start BETWEEN {window[0] - 1000} AND {window[1] + 1000}"
            if table == "NVTX_EVENTS":
                own = (
                    f"({own} AND coalesce(text, (SELECT value FROM whole.StringIds WHERE id = textId), '') NOT LIKE "
                    f"'{MARK}%') OR eventType = 75 OR coalesce(text, (SELECT value FROM whole.StringIds WHERE id = "
                    "textId), '') LIKE 'ncclComm%'"
                )
            elif table == "CUPTI_ACTIVITY_KIND_RUNTIME":
                own += " AND nameId NOT IN (SELECT id FROM whole.StringIds WHERE value LIKE 'cudaEventQuery%' OR value LIKE " \
                    "'cudaGetLastError%' OR value LIKE 'cudaPeekAtLastError%' OR value LIKE 'cudaStreamIsCapturing%' OR " \
                    "value LIKE 'cudaThreadExchangeStreamCaptureMode%' OR value LIKE 'cuGetProcAddress%' OR value LIKE " \
                    "'cuKernelGet%' OR value LIKE 'cudaGetFuncBySymbol%' OR value LIKE 'cudaStreamGetCaptureInfo%')"  # fmt: skip
            file.execute(f"CREATE TABLE {table} AS SELECT * FROM whole.{table} WHERE {own} ORDER BY start")
        used = " UNION ".join(
            f"SELECT {column} FROM {table}" for table, columns in IDS.items() if table in have for column in columns
        )
        file.execute(f"CREATE TABLE StringIds AS SELECT * FROM whole.StringIds WHERE id IN ({used})")
        file.commit()


def _environment() -> dict[str, str]:
    return os.environ | {
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
        "OMP_NUM_THREADS": "1",
    }


def _launch(options: argparse.Namespace) -> list[str]:
    words = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr",
        "127.0.0.1",
        "--nproc-per-node",
        str(options.ranks),
    ]
    more = [
        "--out",
        str(options.out),
        "--only",
        options.only,
        "--device",
        options.device,
        "--ranks",
        str(options.ranks),
        "--until",
        str(options.until),
    ]
    return [sys.executable, *words, str(Path(__file__)), options.what, *more]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["capture", "cut", "time", "all"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--until", type=float, default=math.inf, help="start no program after this time of the epoch, s"
    )
    parser.add_argument("--seconds", type=float, default=600, help="of `all`: start no program later")
    parser.add_argument("--no-cut", action="store_true", help="leave exporting and cutting the session to `cut`")
    parser.add_argument("--nsys", default="nsys")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if "RANK" in os.environ:
        rank(options)
        return 0
    if options.what == "all":
        return everything(options)
    if options.what != "time":
        return capture(options)
    return subprocess.run(_launch(options), env=_environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
