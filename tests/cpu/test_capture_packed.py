"""Captures packed with xz are read as they are, whatever they are called; damaged ones are one sentence."""

import lzma
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from analysis.capture.load import load
from analysis.capture.sniff import sniff
from analysis.formats import packed
from analysis.formats.errors import InputError
from tests import committed

COMMITTED = committed.folder("overview") / "captures"
KERNELS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    "100.0,500,1,500.0,500.0,500,500,0.0,k\n"
)


@pytest.mark.slow
@pytest.mark.skipif(not COMMITTED.is_dir(), reason="the committed H200 run is not in this checkout")
def test_a_whole_capture_reads_the_same_packed_and_plain(tmp_path: Path) -> None:
    for path in COMMITTED.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(COMMITTED)).removesuffix(".xz").replace("/", "-")
            for folder, content in (
                ("plain", packed.read_bytes(path)),
                ("packed", lzma.compress(packed.read_bytes(path))),
            ):
                (tmp_path / folder).mkdir(exist_ok=True)
                (tmp_path / folder / name).write_bytes(content)  # the name does not say that it is packed
    plain, same = load([tmp_path / "plain"]), load([tmp_path / "packed"])
    for one in fields(plain):
        if one.name != "files":
            mine, other = getattr(plain, one.name), getattr(same, one.name)
            if isinstance(mine, pd.DataFrame):
                pd.testing.assert_frame_equal(mine, other)
            elif one.name != "summaries":
                assert mine == other, one.name
    listed = [(file.name, file.kind, file.rows, file.detail) for file in plain.files]
    assert listed == [(file.name, file.kind, file.rows, file.detail) for file in same.files]


def test_encodings_and_several_streams_are_unpacked(tmp_path: Path) -> None:
    halves = lzma.compress(KERNELS[:30].encode()) + bytes(8) + lzma.compress(KERNELS[30:].encode())
    for name, content in (("a", halves), ("b", lzma.compress(b"\xef\xbb\xbf" + KERNELS.encode())),
                          ("c", lzma.compress(KERNELS.encode("utf-16")))):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        assert load([tmp_path / name]).nsys_kernel_sums["total_ns"].tolist() == [500]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lzma.compress(KERNELS.encode())[:-20], "is an xz file that was cut off; unpack it"),
        (lzma.compress(KERNELS.encode())[:40] + b"x" * 20 + lzma.compress(KERNELS.encode())[60:], "is a damaged xz file"),
        (lzma.compress(b"SQLite format 3\0" + bytes(100)), "is a binary file packed with xz; unpack it with `xz -d`"),
        (lzma.compress(b"NVR\0" + bytes(100)), "is a binary file packed with xz; unpack it with `xz -d`"),
        (lzma.compress(lzma.compress(b"x")), "is a binary file of no known kind"),
        (lzma.compress(b""), "is an empty file"),
    ],
)  # fmt: skip
def test_what_is_packed_badly_is_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "f.csv").write_bytes(content)
    with pytest.raises(InputError, match=f"^f.csv: {said}") as error:
        load([tmp_path / "f.csv"])
    assert str(error.value).count("f.csv") == 1
    assert str(error.value).endswith(".")


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_much_is_refused() -> None:
    bomb = lzma.compress(bytes(40 << 20))
    assert len(bomb) < 1 << 16
    with pytest.raises(InputError, match=r"f: is an xz file of more than 16 MiB when unpacked; unpack it"):
        packed.unpack(bomb, "f", 1 << 24)
    with pytest.raises(InputError, match="when unpacked"):  # nor do many streams
        packed.unpack(lzma.compress(bytes(1 << 20)) * 17, "f", 1 << 24)
    with pytest.raises(InputError, match="f: is a damaged xz file"):  # nor do streams without end
        packed.unpack(lzma.compress(b"") * 100_000, "f")
    assert len(packed.unpack(lzma.compress(bytes(1 << 20)) * 16, "f", 1 << 24)) == 1 << 24


def test_a_file_is_found_packed_or_plain(tmp_path: Path) -> None:
    assert packed.find(tmp_path / "a.csv") == tmp_path / "a.csv"
    (tmp_path / "a.csv.xz").write_bytes(lzma.compress(b"packed"))
    assert packed.read_bytes(packed.find(tmp_path / "a.csv")) == b"packed"
    (tmp_path / "a.csv").write_bytes(b"plain")
    assert packed.read_bytes(packed.find(tmp_path / "a.csv")) == b"plain"


def test_a_packed_json_file_of_ours_is_told_from_its_content(tmp_path: Path) -> None:
    (tmp_path / "any").write_bytes(lzma.compress(b'{"kind": "timing", "schema_version": 1, "steps": []}'))
    assert sniff(tmp_path / "any").kind == "timing"
