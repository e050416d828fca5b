"""Small folders in which a file, its records or its ranges are lost: the report names what, and why."""

import lzma
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.capture.load import load
from analysis.formats.errors import InputError
from analysis.formats.report import Missing, Reason
from analysis.page import first
from analysis.pipeline import analyse

GPU = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
) + "".join(f"{n}000,400,{n},64,1,1,128,1,1,32,0.000,0.000,,,,,NVIDIA L4 (0),1,7,turn_page\n" for n in range(1, 5))


def missing(folder: Path, reason: Reason) -> list[Missing]:
    (folder / "cuda_gpu_trace.csv").write_text(GPU)
    return [one for one in load([folder]).missing if one.reason == reason]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("nvtx.csv.xz", lzma.compress(GPU.encode())[:40], "nvtx.csv.xz: an xz file that was cut off"),
        ("api.csv", bytes(range(256)) * 4, "api.csv: no table, but a binary file of no known kind"),
        ("api.csv", b"nothing, to see, here\n", "api.csv: no table of nsys or ncu"),
        ("manifest.json", b'{"kind": "manifest", ', "manifest.json: broken JSON"),
        ("deep/er/ncu.csv", b"\xff\x00\x01" * 50, "deep/er/ncu.csv: no table, but a binary file"),
    ],
)
def test_a_broken_file_beside_good_ones_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)
    (found,) = missing(tmp_path, Reason.UNREAD)
    assert found.what.startswith(said)


def test_many_broken_files_are_one_entry_and_other_files_none(tmp_path: Path) -> None:
    for at in range(5):
        (tmp_path / f"{at}.csv").write_text("nothing, to see, here\n")
    for name in ("README.md", "train.py", "notes.txt"):
        (tmp_path / name).write_text("text\n")
    (found,) = missing(tmp_path, Reason.UNREAD)
    assert found.what == ("5 files that are damaged or no tables of a tool: 0.csv, 1.csv, 2.csv, 3.csv, 4.csv")


def test_an_unreadable_file_or_folder_is_named_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "api.csv").write_text("x")
    scan, opened = os.scandir, Path.open

    def scandir(folder: Any) -> Iterator[Any]:
        if str(folder).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    def open_file(path: Path, *rest: Any, **more: Any) -> Any:
        if path.name in ("api.csv", "locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(Path, "open", open_file)
    assert [one.what for one in missing(tmp_path, Reason.UNREAD)] == [
        "api.csv: it cannot be read (Permission denied)", "locked: it cannot be read (Permission denied)",
    ]  # fmt: skip
    with pytest.raises(InputError, match="cannot be read"):
        load([tmp_path / "api.csv"])


SUM = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range\n"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(6, "StartEnd", ":fetch"), (2, "StartEnd", ":parse")], "has 8 start/end ranges of 2 names (fetch, parse)"),
        ([(1, "StartEnd", "io:read")], "has 1 start/end range of 1 name (io:read)"),
        ([(4, "PushPop", ":fetch")], ""),
    ],
)
def test_start_end_ranges_are_told_from_no_ranges(tmp_path: Path, rows: list[tuple[int, str, str]], said: str) -> None:
    total = sum(count for count, _, _ in rows)
    (tmp_path / "nvtx_sum.csv").write_text(
        SUM
        + "".join(
            f"{100 * n / total:.1f},{n}00,{n},100.0,100.0,100,100,0.0,{style},{name}\n" for n, style, name in rows
        )
    )
    (found,) = missing(tmp_path, Reason.NO_RANGES)
    assert (said in found.why) if said else ("start/end" not in found.why)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Importer error status: Importation succeeded with non-fatal errors.", "succeeded with non-fatal errors"),
        ("Importer error status: Importation failed.", "Importation failed"),
        ("**** Analysis failed with:\nStatus: TargetProfilingFailed", "Analysis failed with"),
    ],
)
def test_an_error_of_the_importer_is_told(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "log.txt").write_text(
        f"Generating '/tmp/a.qdstrm'\n[1/2] [100%] a.nsys-rep\n{line}\n\n{GPU.replace('Name', 'Name')}"
    )
    (found,) = [one for one in load([tmp_path / "log.txt"]).missing if one.reason == Reason.LOST_RECORDS]
    assert said in found.why
    assert load([tmp_path / "log.txt"]).gpu_ops.shape[0] == 4


@pytest.mark.parametrize(("recorded", "lost"), [(5, 0), (3, 2)])
def test_launches_of_an_export_without_a_kernel_are_told(tmp_path: Path, recorded: int, lost: int) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as db:
        db.executescript(
            "CREATE TABLE StringIds (id INTEGER, value TEXT);"
            "INSERT INTO StringIds VALUES (1, 'turn_page'), (2, 'cudaLaunchKernel_v7000');"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, demangledName INTEGER,"
            "shortName INTEGER, correlationId INTEGER, streamId INTEGER, globalPid INTEGER, gridX INTEGER, gridY INTEGER,"
            "gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, nameId INTEGER, globalTid INTEGER,"
            "correlationId INTEGER);"
        )
        for n in range(1, 6):
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 2, 16777217, ?)", (n * 1000, n * 1000 + 90, n)
            )
            if n <= recorded:
                db.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 1, ?, 7, 16777216, 8, 1, 1, 32, 1, 1, 16)",
                    (n * 1000 + 200, n * 1000 + 700, n),
                )
    db.close()
    found = [one.what for one in load([tmp_path / "a.sqlite"]).missing if one.reason == Reason.LOST_RECORDS]
    assert found == ([f"the kernels of {lost} of 5 launch calls of a.sqlite"] if lost else [])


def test_lost_records_come_first(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(f"Importer error status: Importation failed.\n\n{GPU}")
    report = analyse(load([tmp_path / "log.txt"]), None).report
    assert report.missing[0].reason == Reason.LOST_RECORDS
    assert f"Lost: {report.missing[0].what}" in first.lines(report)
