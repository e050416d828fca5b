"""Start the ranks of a program, and end all of them if one dies.

`launch` starts one process for each rank with torchrun's launcher. Each rank calls `join`, which compares the arguments
of all ranks and opens the process group: NCCL between GPUs, gloo between CPU processes. A `Watch` ends a rank that
waits in vain for another. After any failure every rank prints one sentence and ends.
"""

import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from analysis.formats.errors import InputError, UsageError

LIMIT_S = 25.0  # a rank without progress for this long ends, so that all ranks have ended after 30 s
CUDA, CPU = "cuda", "cpu"
HOST = "127.0.0.1"  # no name: looking one up can take half a minute
# This study always turns NVLink multicast (NVLS) off.
ENVIRONMENT = {"NCCL_NVLS_ENABLE": "0"}


class Watch:
    """End this process with one sentence after a SIGTERM, or if `limit_s` seconds pass without a `beat`.

    A thread waits for both, because the main thread runs no Python inside a collective. Python writes the signal's
    number to a pipe that the thread reads.
    """

    def __init__(self, name: str, limit_s: float = LIMIT_S) -> None:
        self.name, self.limit_s, self.at = name, limit_s, "start"
        self._last = time.monotonic()
        self._stopped = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.signal(signal.SIGTERM, lambda *_: None), signal.set_wakeup_fd(self._write)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def beat(self, at: str) -> None:
        """Record that the rank made progress; `at` names where it is now."""
        self.at, self._last = at, time.monotonic()

    def close(self) -> None:
        """Stop watching, and restore the signal's handler."""
        self._stopped = True
        signal.set_wakeup_fd(self._before[1])
        signal.signal(signal.SIGTERM, self._before[0])
        os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _wait(self) -> None:
        while True:
            left_s = self._last + self.limit_s - time.monotonic()
            told = select.select([self._read], [], [], max(0.0, left_s))[0]
            if self._stopped:
                return
            if told and os.read(self._read, 1)[0] == signal.SIGTERM:
                self._end(f"{self.name} was stopped at {self.at}, because another rank ended.")
            if time.monotonic() - self._last >= self.limit_s:
                self._end(f"{self.name} ended: no rank answered for {self.limit_s:g} s at {self.at}.")

    def _end(self, sentence: str) -> None:
        os.write(2, f"{sentence}\n".encode())
        os._exit(InputError.exit_code)


@dataclass(frozen=True)
class World:
    """This rank: its number, the number of ranks, the device that it computes on, and its watch."""

    rank: int
    size: int
    device: torch.device
    watch: Watch

    @property
    def first(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        """Let the host wait until every rank is here and its GPU is idle."""
        if self.device.type == CUDA:
            torch.cuda.synchronize()
        dist.all_reduce(torch.zeros(1, device=self.device))
        if self.device.type == CUDA:
            torch.cuda.synchronize()


def check_devices(device: str, count: int) -> None:
    """Check that `count` ranks can run on this kind of device. Raises: InputError if they cannot."""
    if device == CPU:
        return
    if not torch.cuda.is_available():
        raise InputError(f"torch {torch.__version__} sees no CUDA GPU: use --device cpu, which takes gloo.")
    if not dist.is_nccl_available():
        raise InputError(f"torch {torch.__version__} has no NCCL: install its CUDA build, or use --device cpu.")
    found = torch.cuda.device_count()
    if found < count:
        have = "one GPU" if found == 1 else f"{found} GPUs"
        raise InputError(f"{count} ranks need {count} GPUs and this machine has {have}: use --processes {found}.")


@contextmanager
def join(arguments: str, device: str, limit_s: float = LIMIT_S) -> Iterator[World]:
    """Join the process group that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

    Raises: UsageError if the ranks have different `arguments`; InputError if a rank is missing or died.
    """
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    name = f"Rank {rank} of {size}"
    watch = Watch(name, limit_s)
    try:
        timeout = timedelta(seconds=limit_s)
        store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
        _compare(store, rank, size, arguments)
        place = torch.device(CUDA, rank) if device == CUDA else torch.device(CPU)
        if device == CUDA:
            torch.cuda.set_device(place)
        backend = "nccl" if device == CUDA else "gloo"
        own: dict[str, Any] = {"device_id": place} if device == CUDA else {}
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout, **own)
        yield World(rank, size, place, watch)
        watch.beat("the end")
        dist.destroy_process_group()
    except RuntimeError as error:
        if not lost(error):
            raise
        raise InputError(
            f"{name} ended at {watch.at}: another rank died or did not answer; see that rank's message."
        ) from error
    finally:
        watch.close()


def _compare(store: Any, rank: int, size: int, arguments: str) -> None:
    """Check that all ranks were started with the same arguments. Raises: UsageError if not.

    Rank 0 serves the store, so it leaves only after every rank has read all arguments.
    """
    ranks = range(size)
    store.set(f"arguments of {rank}", arguments)
    every = [store.get(f"arguments of {other}").decode() for other in ranks]
    store.set(f"{rank} has read all arguments", "")
    if rank == 0:
        store.wait([f"{other} has read all arguments" for other in ranks])
    for other, theirs in enumerate(every):
        if theirs != arguments:
            said = f"Rank {other} was started with `{theirs}` and rank {rank} with `{arguments}`"
            raise UsageError(f"{said}: start all ranks with the same arguments.")


def lost(error: RuntimeError) -> bool:
    """Return whether the error says that another rank is gone; gloo raises no error class of its own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error) or "Connection" in str(error)


def free_port() -> int:
    """Return a port of this host that no process listens on."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


# Seconds that torchrun's launcher leaves the other ranks after one has failed; torch 2.11 has no such field.
PATIENCE: dict[str, Any] = {"shutdown_timeout": 5} if hasattr(LaunchConfig, "shutdown_timeout") else {}


def launch(processes: int, module: str, arguments: Sequence[str]) -> None:
    """Run `python -m module arguments…` as so many ranks, and wait for all of them.

    Raises: InputError if a rank fails. Its sentence names the rank; the rank itself has printed the reason.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # one sentence, not a page
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    place = f"{HOST}:{free_port()}"
    config = LaunchConfig(
        1, 1, processes, run_id=f"multi-gpu-{os.getpid()}", rdzv_backend="static", rdzv_endpoint=place,
        rdzv_configs={"rank": 0}, max_restarts=0, local_addr=HOST, **PATIENCE,
    )  # fmt: skip
    try:
        elastic_launch(config, sys.executable)("-m", module, *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise InputError(f"Rank {rank} of {processes} {how}, and the others were stopped: see its message.") from None
