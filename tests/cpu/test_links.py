"""harness.links: what it measures and writes, on CPUs with gloo; and the table of links."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from analysis.capture.model import Capture
from analysis.formats.collectives import bus_factor, communicates, kind_of, size_of
from analysis.formats.errors import InputError
from analysis.formats.run import CEILINGS, COPIES, LINKS, PEER_COPY
from analysis.tables.links import roof_at
from harness import links
from tests.declared import analyse, page
from tests.rank_programs import CONDITIONS

ROOT = Path(__file__).resolve().parents[2]


def row(name: str, size: int, time_ns: float, ranks: int = 2) -> dict[str, Any]:
    return links.link(name, ranks, size, [time_ns] * 3)


def ceilings(*rows: dict[str, Any]) -> dict[str, Any]:
    return CEILINGS.document({"roofs": [], "links": list(rows), "link_conditions": CONDITIONS})


# Sizes and factors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0), ("all_reduce", 4, 1.5), ("all_reduce", 8, 1.75), ("all_gather", 4, 0.75),
        ("reduce_scatter", 2, 0.5), ("all_to_all", 8, 0.875), ("broadcast", 4, 1.0), ("send_recv", 2, 1.0),
        ("all_reduce", 1, None), ("barrier", 2, None), ("unknown", 2, None),
    ],
)  # fmt: skip
def test_the_factors_of_nccl_tests(kind: str, ranks: int, factor: float | None) -> None:
    assert bus_factor(kind, ranks) == factor


def test_what_nccl_is_given_is_one_rank_s_part_of_some_kinds() -> None:
    assert size_of("all_reduce", 100, 4) == 100
    assert size_of("all_gather", 100, 4) == size_of("reduce_scatter", 100, 4) == size_of("all_to_all", 100, 4) == 400
    assert size_of("broadcast", 100, 4) == 100


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)", "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096>)", "unknown"),
        ("void vllm::cross_device_reduce_1stage<half, 2>(RankData *)", "all_reduce"),
        ("one_shot_all_reduce_kernel", "all_reduce"),
        ("ncclReduce", "reduce"),
    ],
)
def test_kernels_that_communicate(kernel: str, kind: str) -> None:
    assert communicates(kernel)
    assert kind_of(kernel) == kind


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::reduce_kernel<512, 1>(float)", "void at::native::vectorized_gather_kernel<16>(char*)",
        "softmax_v03_online", "void at::native::index_elementwise_kernel", "scatter_gather_elementwise_kernel",
    ],
)  # fmt: skip
def test_kernels_that_only_compute(kernel: str) -> None:
    assert not communicates(kernel)


# Measuring ----------------------------------------------------------------------------------------------------------


def test_two_processes_measure_every_link_and_keep_the_other_roofs(tmp_path: Path) -> None:
    roofs = [{"name": "dram_copy", "unit": "byte/s", "value": 4.2e12}]
    (tmp_path / "ceilings.json").write_text(json.dumps(CEILINGS.document({"roofs": roofs, "gpu": "NVIDIA H200"})))
    command = [sys.executable, "-m", "harness.links", "--out", str(tmp_path), "--backend", "gloo", "--most", "1024"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = CEILINGS.check(json.loads((tmp_path / "ceilings.json").read_text()), "ceilings.json")
    assert (written["roofs"], written["gpu"]) == (roofs, "NVIDIA H200")
    assert [one["name"] for one in written["links"]] == list(LINKS)
    assert {one["ranks"] for one in written["links"] if one["name"] not in COPIES} == {2}
    for one in written["links"]:
        factor = bus_factor(one["name"], one["ranks"]) or 1
        assert one["byte_per_s"] == pytest.approx(1024 * factor / one["time_ns"]["p50"] * 1e9)
    said = written["link_conditions"]
    assert (said["backend"], said["ranks"], said["nccl_variables"]["NCCL_NVLS_ENABLE"]) == ("gloo", 2, "0")


def test_one_rank_measures_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "SAMPLES", 1)
    found = links.measure(1, "gloo", 4096)
    assert [(one["name"], one["bytes"]) for one in found] == [(name, size) for name in COPIES for size in (1024, 4096)]


@pytest.mark.parametrize(("gpus", "counts"), [(1, [1]), (2, [2]), (3, [2, 3]), (8, [2, 4, 8])])
def test_collectives_are_measured_of_two_four_and_all_gpus(
    gpus: int, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert links.numbers_of_ranks("nccl") == counts


def test_sizes_go_from_a_kilobyte_to_a_gigabyte() -> None:
    assert (links.sizes()[0], links.sizes()[-1], len(links.sizes())) == (1 << 10, 1 << 30, 11)


def test_a_time_of_nothing_is_no_link() -> None:
    with pytest.raises(InputError, match="took 0 ns"):
        row("peer_copy", 1024, 0)


def test_too_many_ranks_and_a_torch_without_nccl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert links.main(["--out", str(tmp_path), "--ranks", "2"]) == 3
    assert "--ranks 2 needs 2 GPUs, and there are 1" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(links.dist, "is_nccl_available", lambda: False)
    assert links.main(["--out", str(tmp_path), "--ranks", "2"]) == 3
    assert "was built without NCCL: install a build with it" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert links.main(["--out", str(tmp_path)]) == 3
    assert "sees none" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "ceilings.json").write_text("{")
    with pytest.raises(InputError, match="is not valid JSON"):
        links.write(tmp_path, [], {"gpus": []})


# The table ----------------------------------------------------------------------------------------------------------

SOME = (row("all_reduce", 1024, 20_000), row("all_reduce", 1 << 20, 25_000), row("peer_copy", 1 << 20, 4_000))


def test_the_table_of_links() -> None:
    _, tables = analyse(Capture(ceilings=ceilings(*SOME)))
    found = tables["links"]
    assert found["link"].tolist() == ["all_reduce", "all_reduce", "peer_copy"]
    assert found["byte_per_s"].tolist() == pytest.approx([1024 / 20e-6, (1 << 20) / 25e-6, (1 << 20) / 4e-6])
    assert "NCCL 2.27.3, NVLink multicast (NVLS) off" in page(Capture(ceilings=ceilings(*SOME)))


def test_the_roof_between_two_sizes() -> None:
    _, tables = analyse(Capture(ceilings=ceilings(*SOME)))
    found, low, high = tables["links"], 1024 / 20e-6, (1 << 20) / 25e-6
    assert roof_at(found, "all_reduce", 2, 1024) == pytest.approx(low)
    assert roof_at(found, "all_reduce", 2, 32 * 1024) == pytest.approx((low * high) ** 0.5)
    assert roof_at(found, "all_reduce", 2, 1 << 24) == pytest.approx(high)
    assert roof_at(found, "all_reduce", 2, 256) == pytest.approx(low / 4)  # it takes as long as 1 KB
    assert pd.isna(roof_at(found, "all_reduce", 4, 1024))
    assert pd.isna(roof_at(found, "all_gather", 2, 1024))
    assert PEER_COPY in set(found["link"])
