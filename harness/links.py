"""Measure the links of this machine with 1 KB to 1 GB: host to GPU, GPU to GPU, and NCCL's collectives.

python -m harness.links --out DIR    adds `links` to DIR/ceilings.json, or writes that file

Each GPU has a process. The program turns NVLink multicast (NVLS) off with NCCL_NVLS_ENABLE=0, unless you set that
variable; the file records its value. With one GPU the program measures only the links to the host. `--backend gloo`
runs the same code on CPUs, to test the program.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from analysis.formats.collectives import bus_factor
from analysis.formats.console import documented, guarded, run_program
from analysis.formats.errors import InputError
from analysis.formats.run import CEILINGS, COPIES, PEER_COPY
from analysis.formats.spans import spread
from harness import manifest
from harness.console import progress
from harness.timing import hold_gpu

SMALLEST, LARGEST = 1 << 10, 1 << 30
SAMPLES = 15
WARMUP = 3
LAUNCH_NS = 100_000  # a launch of NCCL takes the host less
WAIT_SECONDS = 30  # how long a rank waits for another, besides 60 s for the copies of rank 0
MULTICAST = "NCCL_NVLS_ENABLE"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")

Run = Callable[[], object]


def sizes(most: int = LARGEST) -> list[int]:
    """Return the sizes to measure in bytes: 1 KB, 4 KB, 16 KB … up to `most`."""
    found = [SMALLEST]
    while found[-1] * 4 <= most:
        found.append(found[-1] * 4)
    return found


def repeats(size: int) -> int:
    """Return how many transfers of `size` bytes make one sample: it should take about 100 µs or more, but below 1 s."""
    return 50 if size <= 1 << 20 else 5 if size <= 1 << 26 else 1


@dataclass(frozen=True)
class Place:
    """One rank: its number, the number of ranks, and its device."""

    rank: int
    ranks: int
    device: torch.device

    @classmethod
    def of(cls, rank: int, ranks: int, backend: str) -> Place:
        """Return the place of a rank: GPU number `rank` for backend nccl, else the CPU."""
        return cls(rank, ranks, torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    def empty(self, size: int) -> torch.Tensor:
        """Return a tensor of ones that holds `size` bytes."""
        return torch.ones(size // self.dtype.itemsize, dtype=self.dtype, device=self.device)


def times_of(run: Run, count: int, place: Place, *, by_host: bool = False) -> list[float]:
    """Return SAMPLES times of one `run` in ns, each the mean of `count` runs in a row.

    CUDA events take the time on a GPU, which sleeps until the host has queued the runs: small transfers are shorter
    than their launches. The host's clock takes it on a CPU, and with `by_host`: for a call that makes the host wait.
    """
    is_gpu = place.device.type == "cuda"
    for _ in range(WARMUP):
        run()
    found = []
    for _ in range(SAMPLES):
        if is_gpu and by_host:
            torch.cuda.synchronize(place.device)
        if not is_gpu or by_host:
            started = time.perf_counter_ns()
            for _ in range(count):
                run()
            if is_gpu:
                torch.cuda.synchronize(place.device)
            found.append((time.perf_counter_ns() - started) / count)
            continue
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        hold_gpu(LAUNCH_NS * (count + 1))
        run()  # a collective synchronises the ranks: all leave it together
        begin.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e6 / count)
    return found


def link(name: str, ranks: int, size: int, samples: Sequence[float]) -> dict[str, Any]:
    """Return one row of `links` from times in ns; its rate is from the median, for a collective the bus bandwidth.
    Raises: InputError if the 5th percentile of the times is not above 0.
    """
    time_ns = spread(samples, 1)
    if time_ns["p5"] <= 0:
        raise InputError(f"{name} of {size} bytes took 0 ns: the clock failed, so measure again.")
    rate = size / time_ns["p50"] * 1e9 * (bus_factor(name, ranks) or 1.0)
    return {"name": name, "ranks": ranks, "bytes": size, "time_ns": time_ns, "byte_per_s": rate, "samples": SAMPLES}


def _copies(place: Place, most: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of copies between rank 0's GPU and its host: both directions, pinned and pageable host memory."""
    for name in COPIES:
        pinned = name.endswith("_pinned")
        for size in sizes(most):
            host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned and place.device.type == "cuda")
            other = torch.ones(size, dtype=torch.uint8, device=place.device)
            into, source = (other, host) if name.startswith("host") else (host, other)
            copy = partial(into.copy_, source, non_blocking=pinned)
            samples = times_of(copy, repeats(size), place, by_host=not pinned)
            yield link(name, 1, size, samples)


def _peer_copies(place: Place, most: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of copies from GPU 0 to GPU 1. Only rank 0 runs this."""
    next_one = torch.device("cuda", 1) if place.device.type == "cuda" else place.device
    for size in sizes(most):
        source = torch.ones(size, dtype=torch.uint8, device=place.device)
        into = torch.ones(size, dtype=torch.uint8, device=next_one)
        copy = partial(into.copy_, source, non_blocking=True)
        yield link(PEER_COPY, 2, size, times_of(copy, repeats(size), place))


def _collective(name: str, size: int, place: Place) -> Run:
    """Return a function that runs the collective `name` once.

    `size` counts bytes as nccl-tests does: for all_gather the whole output, for reduce_scatter the whole input.
    """
    whole = place.empty(size)
    part = place.empty(max(size // place.ranks, place.dtype.itemsize))
    whole = whole[: part.numel() * place.ranks] if name != "all_reduce" else whole
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if name == "all_gather":
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # until torch 2.12
        return lambda: gather(whole, part)
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return lambda: scatter(part, whole)


def _collectives(place: Place, most: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of collectives. Every rank runs this; each sample is the time of the slowest rank."""
    for name in COLLECTIVES:
        for size in sizes(most):
            samples = torch.tensor(times_of(_collective(name, size, place), repeats(size), place), dtype=torch.float64)
            samples = samples.to(place.device)
            dist.all_reduce(samples, op=dist.ReduceOp.MAX)
            yield link(name, place.ranks, size, samples.tolist())


def measure_rank(place: Place, most: int, *, copies: bool = True) -> list[dict[str, Any]]:
    """Return the rows of `links` that one rank measures; only rank 0 measures copies, if `copies` is set.

    More than one rank needs a process group.
    """
    found: list[dict[str, Any]] = []
    if copies and place.rank == 0:
        found += _copies(place, most)
    if place.ranks > 1:
        if copies and place.rank == 0:
            found += _peer_copies(place, most)
        dist.barrier()
        found += _collectives(place, most)
    return found


def _process(rank: int, ranks: int, backend: str, most: int, folder: str, copies: bool) -> None:
    """Measure as one rank, in a process of its own if there are several. Rank 0 writes its rows to links.json."""
    place = Place.of(rank, ranks, backend)
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)
    if ranks > 1:
        store = dist.FileStore(f"{folder}/store", ranks)
        # while rank 0 copies, the others wait for it at a barrier: give that 60 s more
        wait = timedelta(seconds=WAIT_SECONDS + 60)
        own: dict[str, Any] = {"device_id": place.device} if place.device.type == "cuda" else {}
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=wait, **own)
    try:
        found = measure_rank(place, most, copies=copies)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    if rank == 0:
        Path(folder, "links.json").write_text(json.dumps(found), encoding="utf-8")


def check(ranks: int, backend: str) -> None:
    """Check that this machine can measure so many ranks. Raises: InputError if it cannot."""
    if backend == "gloo":
        return
    gpus = torch.cuda.device_count()
    if not gpus:
        raise InputError(
            f"The links need a CUDA GPU, and torch {torch.__version__} sees none: ask `python -m harness.doctor` why."
        )
    if ranks > gpus:
        raise InputError(f"--ranks {ranks} needs {ranks} GPUs, and there are {gpus}: use fewer ranks.")
    if ranks > 1 and not dist.is_nccl_available():
        raise InputError(
            f"torch {torch.__version__} was built without NCCL: install a build with it, or use --ranks 1."
        )


def measure(ranks: int, backend: str, most: int = LARGEST, *, copies: bool = True) -> list[dict[str, Any]]:
    """Return the rows of `links` of so many ranks; without `copies`, only the collectives' rows.

    Raises: InputError if this machine cannot measure so many ranks, or if one of them failed.
    """
    check(ranks, backend)
    with tempfile.TemporaryDirectory() as folder:
        if ranks == 1:
            _process(0, 1, backend, most, folder, copies)
        else:
            how = "spawn" if backend == "nccl" else "fork"  # CUDA does not survive a fork
            try:
                asked = ranks, backend, most, folder, copies
                multiprocessing.start_processes(_process, asked, ranks, start_method=how)
            except Exception as error:  # a rank failed, and torch has ended the others
                reason = str(error).strip().splitlines()[-1]
                raise InputError(f"The links were not measured, because a rank failed: {reason}") from error
        return list(json.loads(Path(folder, "links.json").read_text(encoding="utf-8")))


def conditions(ranks: int, backend: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return `link_conditions` of ceilings.json: the backend, GPUs, versions and NCCL variables of the measurement."""
    is_gpu = backend == "nccl"
    version = ".".join(map(str, torch.cuda.nccl.version())) if is_gpu and ranks > 1 else ""
    return {
        "backend": backend,
        "nccl": version,
        "dtype": str(Place.of(0, ranks, backend).dtype).removeprefix("torch."),
        "ranks": ranks,
        "gpus": [torch.cuda.get_device_name(one) for one in range(ranks)] if is_gpu else [],
        "torch": torch.__version__,
        "nccl_variables": {name: environment[name] for name in sorted(environment) if name.startswith("NCCL_")},
        "driver": manifest._driver_version() or "" if is_gpu else "",
        "measured": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
    }


def numbers_of_ranks(backend: str) -> list[int]:
    """Return the numbers of ranks to measure: 2, 4, 8 … and all GPUs; 1 for one GPU or none; 2 for backend gloo."""
    gpus = 2 if backend == "gloo" else torch.cuda.device_count()
    powers = [1 << power for power in range(1, gpus.bit_length()) if 1 << power <= gpus]
    return sorted({*powers, max(gpus, 1)})


def write(out: Path, links: list[dict[str, Any]], said: dict[str, Any]) -> None:
    """Write the links and their conditions into ceilings.json, and keep the roofs that it has.

    Raises: InputError if the file is there and is not a valid ceilings.json.
    """
    path = out / CEILINGS.name
    document: dict[str, Any] = {"roofs": [], "gpu": next(iter(said["gpus"]), "")}
    if path.is_file():
        try:
            document = CEILINGS.check(json.loads(path.read_text(encoding="utf-8")), path.name)
        except ValueError as error:
            raise InputError(f"{path.name} is not valid JSON ({error}): remove it, or give another --out.") from None
    out.mkdir(parents=True, exist_ok=True)
    manifest.write_json(path, CEILINGS.document({**document, "links": links, "link_conditions": said}))


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = documented("python -m harness.links", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of ceilings.json")
    parser.add_argument("--ranks", type=int, help="number of GPUs (default: 2, 4 … and all)")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo: test this program on CPUs")
    parser.add_argument("--most", type=int, default=LARGEST, help="largest size in bytes (1 GB)")
    options = parser.parse_args(argv)
    if options.most < SMALLEST or (options.ranks is not None and options.ranks < 1):
        parser.error(f"--most is at least {SMALLEST} and --ranks at least 1")

    def program() -> int:
        os.environ.setdefault(MULTICAST, "0")
        counts = [options.ranks] if options.ranks else numbers_of_ranks(options.backend)
        found: list[dict[str, Any]] = []
        for ranks in counts:
            progress(
                f"measuring the links of {ranks} GPUs" if ranks > 1 else "measuring the links of a GPU to its host"
            )
            found += measure(ranks, options.backend, options.most, copies=not found)
        write(options.out, found, conditions(max(counts), options.backend, os.environ))
        progress(f"wrote {options.out}")
        return 0

    return guarded(program, "a smaller --most: the links need 3 times as many bytes")


if __name__ == "__main__":
    sys.exit(run_program(main))
