"""Binary captures exported by the tools of NVIDIA, here by scripts that stand for them."""

from pathlib import Path

import pytest

from analysis.capture.convert import converted, find_program
from analysis.formats.errors import InputError

REPORT = b"NVIDIA Tegra Profiler Report 2025@6\0"
COPY = """#!/bin/bash
while [[ $# -gt 0 ]]; do
  case $1 in --output|-o|--log-file) out=$2; shift;; esac
  shift
done
"""


def tool(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(COPY + body)
    (folder / name).chmod(0o755)


def test_reports_are_exported_and_other_files_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "bin", "nsys", 'echo exported > "$out"\n')
    tool(tmp_path / "bin", "QdstrmImporter", "printf 'NVIDIA Tegra Profiler Report' > \"$out\"\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "my run.nsys-rep").write_bytes(REPORT)
    (tmp_path / "raw.qdstrm").write_bytes(b"\0\0QuadDaemon\0")
    (tmp_path / "x.csv").write_text("a,b\n")
    paths = [tmp_path / name for name in ("my run.nsys-rep", "raw.qdstrm", "x.csv")]
    with converted([*paths, tmp_path]) as read:
        assert [path.name for path in read] == ["my run.sqlite", "raw.sqlite", "x.csv", tmp_path.name]
        assert read[0].read_text() == "exported\n"
    assert not read[0].exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "my run.nsys-rep", "raw.qdstrm", "x.csv"]


def test_a_tool_that_is_missing_or_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.nsys-rep").write_bytes(REPORT)
    monkeypatch.setattr("analysis.capture.convert.find_program", lambda name: None)
    with pytest.raises(InputError, match="--convert needs nsys"), converted([tmp_path / "x.nsys-rep"]):
        pass
    tool(tmp_path / "bin", "nsys", 'echo "cannot open $0" >&2; exit 1\n')
    monkeypatch.setattr("analysis.capture.convert.find_program", lambda name: tmp_path / "bin" / name)
    with (
        pytest.raises(InputError, match="nsys could not export it and said 'cannot open"),
        converted([tmp_path / "x.nsys-rep"]),
    ):
        pass


def test_the_newest_tool_of_the_installers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for version in ("2024.1.1", "2025.3.1"):
        (tmp_path / f"opt/nvidia/nsight-systems/{version}/bin").mkdir(parents=True)
        tool(tmp_path / f"opt/nvidia/nsight-systems/{version}/bin", "nsys", "")
    found = find_program("nsys", tmp_path)
    assert found == tmp_path / "opt/nvidia/nsight-systems/2025.3.1/bin/nsys"
    assert find_program("ncu", tmp_path) is None
