"""Write the files of a run that several programs share: each adds its own entries and keeps the others."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.formats.errors import InputError
from analysis.formats.files import JsonFile
from harness import manifest

RUNS = Path(__file__).resolve().parent.parent / "runs"


def default_run(what: str) -> Path:
    """runs/<time>-<gpu>-<what>."""
    gpu = manifest.gpu_facts()
    slug = re.sub(r"[^a-z0-9.-]+", "-", gpu["name"].lower().removeprefix("nvidia ")).strip("-") if gpu else "cpu"
    return RUNS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{slug}-{what}"


def captures_of(run: Path) -> Path:
    """Return the captures folder of a run; creates it if needed. Raises InputError if that fails."""
    folder = run / "captures"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {run} cannot be made ({error.strerror}): give a writable folder.") from error
    return folder


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None without a file or an object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def merge_entry(folder: Path, file: JsonFile, field: str, entry: Mapping[str, Any], key: Sequence[str]) -> None:
    """Put `entry` into the list `field` of a file of this kind, and replace the entry with equal `key` fields."""
    content = read_json(folder / file.name)
    entries = list((content or {}).get(field) or []) if content and content.get("kind") == file.kind else []
    kept = [other for other in entries if any(other.get(name) != entry.get(name) for name in key)]
    manifest.write_json(folder / file.name, file.document({field: [*kept, dict(entry)]}))


def write_conditions(
    captures: Path,
    arguments: Sequence[str],
    workloads: Sequence[dict[str, Any]],
    seed: int,
    weights: dict[str, Any],
    sampler: manifest.ClockSampler | None,
) -> None:
    """Write manifest.json of the run. An existing one keeps its clocks and gains these workloads."""
    written = manifest.build_manifest(arguments, workloads, seed, weights, sampler)
    old = read_json(captures / "manifest.json")
    if old is not None and not manifest.validate_manifest(old) and old["gpu"] == written["gpu"]:
        old["workloads"] += [entry for entry in written["workloads"] if entry not in old["workloads"]]
        if old["clocks"] is None:
            old["clocks"], old["clocks_reason"] = written["clocks"], written["clocks_reason"]
        written = old
    manifest.write_manifest(captures / "manifest.json", written)
