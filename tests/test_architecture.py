"""What a process imports in fact; `make lint` holds the contracts of pyproject.toml."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cpu.test_report import EXEC, NCU, RANGES, TRACE

ROOT = Path(__file__).resolve().parents[1]
MODULES = """
import json, sys
from pathlib import Path
from analysis import report
assert report.main(["--quiet", "--out", sys.argv[1], *sys.argv[2:]]) == 0
print(json.dumps(sorted(sys.modules)))
"""


def loaded(*paths: Path, out: Path) -> list[str]:
    """Return the modules that a process imports to write the report on a capture."""
    command = [sys.executable, "-c", MODULES, str(out), *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def of(package: str, modules: list[str]) -> list[str]:
    return [name for name in modules if name.partition(".")[0] == package]


def test_the_report_on_a_strangers_capture_loads_no_study(tmp_path: Path) -> None:
    for name, text in (("a", TRACE), ("b", EXEC), ("c", RANGES), ("d", NCU)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    modules = loaded(*(tmp_path / name for name in "abcd"), out=tmp_path / "out")
    assert "analysis.diagnosis.findings" in modules
    assert [*of("studies", modules), *of("harness", modules), *of("kernels", modules), *of("torch", modules)] == []


def test_a_file_of_a_study_brings_its_tables(tmp_path: Path) -> None:
    modules = loaded(ROOT / "reports" / "cpu-multi-gpu" / "captures", out=tmp_path / "out")
    assert {name.split(".")[1] for name in of("studies", modules)[1:]} >= {"multi_gpu"}
    assert (tmp_path / "out" / "tables" / "multi_gpu.csv").is_file()
    assert of("torch", modules) == []


@pytest.mark.parametrize("folder", ["harness", "kernels"])
def test_transformers_is_imported_inside_functions(folder: str) -> None:
    """Hugging Face's own package `kernels` breaks transformers beside our folder of that name."""
    early = re.compile(r"^(?:import|from) transformers\b", re.MULTILINE)
    assert [path for path in (ROOT / folder).rglob("*.py") if early.search(path.read_text(encoding="utf-8"))] == []
