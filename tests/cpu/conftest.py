"""Machines of fakes, for the tests of the scripts, and one thread for models of a few kilobytes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine import FAKE_NCU, FAKE_NSYS, FAKE_SMI, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def gpu_machine(machine: Machine) -> Machine:
    machine.put("bin/nsys", FAKE_NSYS)
    machine.put("bin/ncu", FAKE_NCU)
    machine.put("bin/nvidia-smi", FAKE_SMI)
    return machine


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Matrices this small are slower on many threads, and a busy machine makes threads wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
