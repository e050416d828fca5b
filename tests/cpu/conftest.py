"""Machines of fakes, for the tests of the scripts."""

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
