"""What a run on a GPU becomes in reports/, and which runs are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.bench_files import BENCH
from kernels.registry import ops
from kernels.variants import fingerprint
from tests.gpu import publish

GPU = "NVIDIA Example"
LOOP = "op,dtype,shape_name,rung,library,published,looped,apart\n"


def measured(folder: Path, name: str, *rows: str, gpu: str = GPU, **more: Any) -> None:
    """Write the files of a program; `rows` are variants in fp32 at b8."""
    target = folder / name
    target.mkdir(parents=True)
    op = ops()[name.partition("-")[0]]
    sources = {variant: fingerprint(op, variant) for variant in rows}
    document = {"kind": BENCH.kind, "conditions": {"gpu": {"name": gpu}}, "failed": [], "sources": sources} | more
    (target / "bench.json").write_text(json.dumps(document))
    lines = ["op,variant,dtype,shape_name", *(f"{op.name},{variant},fp32,b8" for variant in rows)]
    (target / "bench.csv").write_text("\n".join(lines) + "\n")
    (target / "plain_loop.csv").write_text(f"{LOOP}{op.name},fp32,b8,v02,torch,1.0,1.05,0.05\n")
    for file in ("correctness.txt", "microbenchmark.txt"):
        (target / file).write_text(name)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "published.toml").write_text(f'[ex]\ngpu = "{GPU}"\nbenches = "ex-{{op}}-bench"\n')
    return folder


def run(reports: Path, folder: Path, *more: str) -> int:
    return publish.main([str(folder), "--reports", str(reports), *more])


def test_runs_become_benchmarks_and_searches_runs_of_their_own(tmp_path: Path, reports: Path) -> None:
    measured(tmp_path / "new", "gelu", "torch", "v02_vector")
    measured(tmp_path / "new", "layernorm-triton_tuned", "torch", "triton_tuned", "v05_vector")
    (tmp_path / "new" / "plain_loop_gemv.csv").write_text(f"{LOOP}gemv,bf16,qkv,v05,torch,1.5,1.5,0.0\n")
    assert run(reports, tmp_path / "new", "-n") == 0
    assert [path.name for path in reports.iterdir()] == ["published.toml"]
    assert run(reports, tmp_path / "new") == 0
    assert (reports / "ex-gelu-bench" / "microbenchmark.txt").read_text() == "gelu"
    assert "triton_tuned" in (reports / "ex-layernorm-tuned-bench" / "bench.csv").read_text()
    checks = {path.name: path.read_text().splitlines()[1:] for path in (reports / "ex-checks").iterdir()}
    assert checks == {
        "plain_loop_isolated.csv": ["gelu,fp32,b8,v02,torch,1.0,1.05,0.05"],
        "plain_loop_tuned.csv": ["layernorm,fp32,b8,v02,torch,1.0,1.05,0.05"],
        "plain_loop_gemv.csv": ["gemv,bf16,qkv,v05,torch,1.5,1.5,0.0"],
    }


def test_the_loops_of_other_ops_stay(tmp_path: Path, reports: Path) -> None:
    into = reports / "ex-checks" / "plain_loop_isolated.csv"
    into.parent.mkdir()
    into.write_text(f"{LOOP}gelu,fp32,b8,v02,torch,2,2,0\nresidual,fp32,b8,v02,torch,3,3,0\n")
    measured(tmp_path / "new", "gelu", "torch")
    assert run(reports, tmp_path / "new") == 0
    assert [line.split(",")[5] for line in into.read_text().splitlines()[1:]] == ["3", "1.0"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"gpu": "NVIDIA H100 80GB HBM3"}, "was measured on NVIDIA H100 80GB HBM3, for which reports/published.toml"),
        ({"failed": ["torch"]}, "torch has wrong results"),
        ({"sources": {"v02_vector": "f" * 12}}, "v02_vector is of another source than today's"),
    ],
)
def test_a_run_that_must_not_be_published_is_refused(
    tmp_path: Path, reports: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], said: str
) -> None:
    measured(tmp_path / "new", "residual", "torch")  # a good one beside it is not copied either
    measured(tmp_path / "new", "gelu", "torch", "v02_vector", **more)
    assert run(reports, tmp_path / "new") == 3
    assert said in capsys.readouterr().err
    assert [path.name for path in reports.iterdir()] == ["published.toml"]


def test_a_benchmark_with_fewer_rows_replaces_none(
    tmp_path: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(reports, "gelu", "torch", "v01_naive")
    (reports / "gelu").rename(reports / "ex-gelu-bench")
    measured(tmp_path / "new", "gelu", "torch")
    assert run(reports, tmp_path / "new") == 3
    assert "lacks 1 rows of the committed benchmark, such as v01_naive fp32 b8" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        publish.main(["--help"])
    assert run(reports, tmp_path) == 3
    assert "holds no finished benchmark" in capsys.readouterr().err
