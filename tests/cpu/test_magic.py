"""The cell magic of notebooks, on a machine of fakes, and without a GPU."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kernel_ledger
from kernel_ledger import magic


class Shell:
    """What the magic needs of IPython."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.cells: dict[str, Any] = {}

    def register_magic_function(self, function: Any, kind: str) -> None:
        assert kind == "cell"
        self.cells[function.__name__] = function


@pytest.fixture
def shell() -> Shell:
    found = Shell()
    kernel_ledger.load_ipython_extension(found)
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[list[str], dict[str, str]]]:
    """Record the commands instead of running them; runs lie below tmp_path."""
    found: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], more: dict[str, str]) -> int:
        found.append((command, more))
        return 2

    monkeypatch.setattr(magic, "_printed", run)
    monkeypatch.setattr("analysis.formats.place.runs", lambda here: tmp_path / "runs")
    return found


def test_the_extension_registers_the_magic(shell: Shell) -> None:
    assert set(shell.cells) == {"kernel_ledger"}


def test_a_cell_is_a_program_and_the_doctor_says_what_is_missing(
    shell: Shell, started: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert shell.cells["kernel_ledger"]("--budget 5", "print(1)\n") is None
    (driver, more), (doctor, looked) = started
    at = driver.index("--")
    script = Path(driver[-1])
    assert driver[2:at] == ["--run", str(script.parent.parent), "--budget", "5"]
    assert script.read_text() == "print(1)\n"
    assert script.is_relative_to(tmp_path / "runs")
    assert more["PYTHONPATH"].startswith(str(Path.cwd()))
    assert doctor[1:] == ["-m", "harness.doctor"]
    assert (Path(looked["PYTHONPATH"]) / "harness" / "doctor.py").is_file()
    assert "The cell was not profiled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("-- rm", "1", "leave out -- and --run"),
        ("--run x", "1", "leave out -- and --run"),
        ("--as 1x", "1", "--as needs the name of a variable"),
        ("--as", "1", "--as needs the name of a variable"),
        ("'", "1", "No closing quotation"),
        ("", "x = 1\n!ls", "line 2 is not plain Python"),
        ("--help", "1", "usage: %%kernel_ledger"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(
    shell: Shell, started: list[Any], capsys: pytest.CaptureFixture[str], line: str, cell: str, said: str
) -> None:
    assert shell.cells["kernel_ledger"](line, cell) is None
    assert said in capsys.readouterr().out
    assert started == []


def test_a_profiled_cell_is_shown_and_kept(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    analysis = SimpleNamespace()
    monkeypatch.setattr(magic, "_profiled", lambda cell, options: (tmp_path, 0))
    monkeypatch.setattr(magic.kernel_ledger, "load", lambda path: path)
    monkeypatch.setattr(magic.kernel_ledger, "analyse", lambda capture: analysis)
    assert shell.cells["kernel_ledger"]("--as mine", "1") is analysis
    assert shell.user_ns == {"mine": analysis}
