"""Start ranks for tests: processes that join once by gloo, and then run one function of a test after the other.

A server that has imported torch and built a model forks them.
"""

import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from studies.multi_gpu.measure_ranks import HOST, free_port, join

SERVER = "tests.rank_server"


def context() -> Any:
    """Return the context that forks processes from the server."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([SERVER])
    return found


def place(rank: int, size: int, port: int) -> None:
    """Set the environment variables of a rank, as torchrun does."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": HOST, "MASTER_PORT": str(port)}


def _serve(rank: int, size: int, port: int, limit_s: float, orders: Connection) -> None:
    place(rank, size, port)
    with join("", "cpu", limit_s) as world:
        while (order := orders.recv()) is not None:
            module, name, arguments = order
            world.watch.beat(name)
            orders.send(getattr(importlib.import_module(module), name)(world, *arguments))


class Ranks:
    """`size` ranks that stay. `run` calls a module's function on each rank, with its world and the same arguments."""

    def __init__(self, size: int, limit_s: float = 600.0) -> None:
        self.size = size
        port, start = free_port(), context()
        self.pipes, self.processes = [], []
        for rank in range(size):
            mine, theirs = start.Pipe()
            process = start.Process(target=_serve, args=(rank, size, port, limit_s, theirs), daemon=True)
            process.start()
            self.pipes.append(mine)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the results of all ranks, in the order of the ranks."""
        for pipe in self.pipes:
            pipe.send((function.__module__, function.__name__, arguments))
        return [pipe.recv() for pipe in self.pipes]

    def close(self) -> None:
        """End all ranks."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(20)


def _alone(rank: int, size: int, port: int, function: Callable[..., Any], arguments: Sequence[Any], said: str) -> None:
    sys.stderr = open(said, "w", encoding="utf-8", buffering=1)  # noqa: SIM115  it lives as long as the process
    os.dup2(sys.stderr.fileno(), 2)
    place(rank, size, port)
    sys.exit(function(rank, *arguments))


def start(size: int, said: Sequence[str], function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Start new ranks that run `function(rank, *arguments)`, which joins by itself. The result is the exit code.

    Each rank writes its stderr to its file of `said`.
    """
    port, found = free_port(), []
    for rank in range(size):
        process = context().Process(
            target=_alone, args=(rank, size, port, function, arguments, said[rank]), daemon=True
        )
        process.start()
        found.append(process)
    return found
