"""Store the roofs of a GPU and the self-test of its counters: both are measured once for each GPU and driver."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.formats.writing import read_json, write_json
from harness.profile.folder import Folder, digest
from harness.profile.machine import Machine, cache_folder

CEILINGS, SELFTEST, MANIFEST = "ceilings.json", "selftest.json", "manifest.json"


class Roofs:
    """The stored files of this GPU and driver.

    The self-test is repeated after a change of ncu, of the driver's rule who may count, or of the user.
    """

    def __init__(self, machine: Machine) -> None:
        base = cache_folder()
        self.machine = machine
        self.folder = base / f"{machine.slug}-{machine.driver or 'no-driver'}" if base else None

    def read(self, name: str) -> dict[str, Any]:
        """Return the content of a stored file; {} if there is none."""
        return read_json(self.folder / name) if self.folder else {}

    def may_count(self) -> str:
        """Return a digest of what decides whether ncu can count: its version, the driver's rule and the user."""
        try:
            rules = Path("/proc/driver/nvidia/params").read_text(encoding="utf-8", errors="replace")
        except OSError:
            rules = ""
        return digest([self.machine.ncu, "RmProfilingAdminOnly: 1" in rules, os.geteuid()])

    def are_kept(self) -> bool:
        """Return whether roofs (with several GPUs, links too) and a valid self-test are stored."""
        tested = self.read(SELFTEST) or self.read("untested.json")
        ceilings = self.read(CEILINGS)
        if self.machine.gpus > 1 and not ceilings.get("links"):
            return False
        return bool(ceilings) and tested.get("counted_as") == self.may_count()

    def keep(self, scratch: Folder) -> None:
        """Copy the results from `scratch` to the stored folder, each file whole or not at all."""
        folder = self.folder or scratch.raw / "roofs"
        self.folder = folder
        for name in (CEILINGS, MANIFEST):
            if found := read_json(scratch.captures / name):
                write_json(folder / name, found)
        tested = self._tested(scratch)
        write_json(folder / (SELFTEST if tested["checks"] else "untested.json"), tested)

    def _tested(self, scratch: Folder) -> dict[str, Any]:
        """Return the content of selftest.json, from the report of a run with only the self-test."""
        trust = read_json(scratch.path / "report.json").get("trust") or {}
        names = ("name", "unit", "expected", "measured")
        return {
            "kind": "selftest",
            "schema_version": 1,
            "gpu": self.machine.gpu,
            "driver": self.machine.driver,
            "ncu": self.machine.ncu,
            "measured": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
            "checks": [{name: check[name] for name in names} for check in trust.get("checks") or []],
            "counted_as": self.may_count(),
        }

    def hand_to(self, captures: Path) -> list[str]:
        """Copy the stored roofs and self-test into a run's captures, and return the names of the files."""
        given = []
        for name in (CEILINGS, SELFTEST):
            if found := self.read(name):
                found.pop("counted_as", None)
                write_json(captures / name, found)
                given.append(name)
        return given


def scratch_folder(path: Path) -> Folder:
    """Return an empty run folder in which to measure roofs, so that no partial result is stored."""
    folder = Folder(path)
    shutil.rmtree(folder.path, ignore_errors=True)
    for path in (folder.raw, folder.captures):
        path.mkdir(parents=True, exist_ok=True)
    return folder
