"""Small text files in other encodings, with names over several lines, packed to fill the memory, on poor terminals."""

import gzip
import io
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.capture.load import load
from analysis.formats import console
from analysis.formats.errors import InputError
from analysis.formats.packed import stated_size

ROOT = Path(__file__).parents[2]
HEADER = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
NAMES = ("lösche_zeile", "lôsche_zeile")


def row(total: int, name: str, share: float = 50.0) -> str:
    return f"{share:.1f},{total},4,{total / 4},{total / 4},{total // 4},{total // 4},0.0,{name}\n"


def sums(names: tuple[str, ...] = NAMES) -> str:
    return HEADER + "".join(row(4_000, name, 100 / len(names)) for name in names)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_two_names_stay_two_kernels_in_every_encoding(tmp_path: Path, encoding: str, packed: bool) -> None:
    raw = sums().encode(encoding)
    (tmp_path / "sums.csv").write_bytes(lzma.compress(raw) if packed else raw)
    found = load([tmp_path / "sums.csv"]).nsys_kernel_sums
    assert list(found["kernel"]) == list(NAMES)
    assert list(found["total_ns"]) == [4_000, 4_000]


def test_a_name_in_code_page_1252_far_into_a_large_file_is_read(tmp_path: Path) -> None:
    many = tuple(f"kernel_with_a_long_name_to_fill_the_file_{at:06d}" for at in range(20_000))
    (tmp_path / "sums.csv").write_bytes(sums((*many, *NAMES)).encode("cp1252"))
    assert (tmp_path / "sums.csv").stat().st_size > 1 << 20
    assert list(load([tmp_path / "sums.csv"]).nsys_kernel_sums["kernel"][-2:]) == list(NAMES)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ['"blur<int,\n (int)3>(float *, int)"', '"blur<int,\n(int)3>\n(float *, int)"'])
def test_a_quoted_name_goes_on_in_the_next_lines(tmp_path: Path, name: str, end: str) -> None:
    text = HEADER + row(8_000, name, 66.7) + row(4_000, '"sharpen(float *, int)"', 33.3)
    (tmp_path / "sums.csv").write_bytes(text.replace("\n", end).encode())
    found = load([tmp_path / "sums.csv"]).nsys_kernel_sums
    assert list(found["total_ns"]) == [8_000, 4_000]
    assert found["kernel"][0].replace("> (", ">(") == "blur<int, (int)3>(float *, int)"


def test_a_lost_quote_joins_no_rows(tmp_path: Path) -> None:
    text = HEADER + row(8_000, '"blur(float *, int)', 66.7) + row(4_000, '"sharpen(float *, int)"', 33.3)
    (tmp_path / "sums.csv").write_text(text)
    with pytest.raises(InputError, match="line 2 has"):
        load([tmp_path / "sums.csv"])


def test_a_packed_file_states_its_size_and_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    for raw in (b"", b"a" * 70_000, os.urandom(5_000)):
        assert stated_size(lzma.compress(raw)) == len(raw)
    bomb = lzma.compress(bytes(1 << 20))
    size = (2 << 30).to_bytes(8, "little")  # an index that states 2 GiB: one record of 40 bytes
    numbers = bytes([1, 40, *(0x80 | (2 << 30 >> shift & 0x7F) for shift in (0, 7, 14, 21)), 2 << 30 >> 28])
    index = b"\0" + numbers + bytes(-(len(numbers) + 1) % 4) + size[:4]
    footer = size[:4] + (len(index) // 4 - 1).to_bytes(4, "little") + b"\0\4YZ"
    assert stated_size(bomb + index + footer) == 2 << 30
    (tmp_path / "sums.csv.xz").write_bytes(bomb + index + footer)
    with pytest.raises(InputError, match="more than 64 MiB when unpacked"):
        load([tmp_path / "sums.csv.xz"])


@pytest.mark.slow
def test_a_gzip_file_made_to_fill_the_memory_is_refused(tmp_path: Path) -> None:
    head = b'{"schemaVersion": 1, "traceEvents": ['
    packed = gzip.compress(head + b" " * (80 << 20), compresslevel=9)
    (tmp_path / "trace.json.gz").write_bytes(packed)
    with pytest.raises(InputError, match="more than 64 MiB"):
        load([tmp_path / "trace.json.gz"])


@pytest.mark.parametrize(
    ("magic", "found"), [(b"PK\x03\x04", "a zip archive"), (b"\x28\xb5\x2f\xfd", "a Zstandard file")]
)
def test_other_archives_are_named(tmp_path: Path, magic: bytes, found: str) -> None:
    (tmp_path / "a.bin").write_bytes(magic + bytes(100))
    with pytest.raises(InputError, match=f"is {found}; unpack it"):
        load([tmp_path / "a.bin"])


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp437"])
def test_a_report_is_printed_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "sums.csv").write_text(sums(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(ROOT / "analysis" / "report.py"), str(tmp_path / "sums.csv"), "--out", str(tmp_path / "out")],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert "zeile" in done.stdout.decode(encoding)


def test_letters_of_units_stay_readable_in_ascii() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console.tolerant(out).write("5 µs – 6 µs … ü")
    out.flush()
    assert out.buffer.getvalue() == b"5 us - 6 us ... ?"  # type: ignore[attr-defined]


NCU_HEADER = [
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
    "Device", "CC", "gpu__time_duration.sum",
]  # fmt: skip


def ncu_page(*names: str) -> str:
    rows = [NCU_HEADER, [*[""] * 11, "us"]]
    rows += [
        [str(at), "7", "app", "127.0.0.1", name, "1", "7", "(32, 1, 1)", "(8, 1, 1)", "0", "8.9", "4.5"]
        for at, name in enumerate(names)
    ]
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_quoted_name_of_ncu_goes_on_in_the_next_lines(tmp_path: Path, end: str) -> None:
    text = ncu_page("blur<int,\n   3>(float *)", "sharpen(int,\nint,\nint)")
    (tmp_path / "ncu.csv").write_bytes(text.replace("\n", end).encode())
    assert list(load([tmp_path / "ncu.csv"]).counters["name"]) == ["blur<int, 3>(float *)", "sharpen(int, int, int)"]


def test_a_lost_quote_of_ncu_joins_no_rows(tmp_path: Path) -> None:
    (tmp_path / "ncu.csv").write_text(
        ncu_page("blur(float *)", "sharpen(int)").replace('"blur(float *)"', '"blur(float *)')
    )
    with pytest.raises(InputError, match="line 3"):
        load([tmp_path / "ncu.csv"])
