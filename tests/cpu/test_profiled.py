"""Two programs of a user's as `make profile` captured them on an H200: what their reports say without any file of ours.

`app`   a CUDA program without NVTX ranges: an iterated stencil, a transposition and a sum, 120 launches
`qwen`  tests/gpu/counting/qwen_like.py: transformers, ranges by module hooks, 1,265 launches in its window
"""

from pathlib import Path
from typing import Any

import pytest

from analysis.capture.load import load
from tests.bench import profiles
from tests.declared import analyse

WHEN = {"app": "2026-11-23T09:46Z", "qwen": "2026-11-23T13:00Z"}
DATA = Path(__file__).parent / "data" / "profile"


@pytest.fixture(scope="module", params=["app", "qwen"])
def program(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The name of the program, the content of its report and the tables."""
    content, tables = analyse(load([DATA / request.param]))
    return request.param, content, tables


def test_kept_roofs_and_selftest_are_named(program: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    name, content, tables = program
    when = f" The self-test ran at {WHEN[name]}, on this model of GPU with driver 580.159.04."
    assert content["trust"]["status"] == "trusted"
    assert content["trust"]["sentence"].endswith(when)
    conditions = {one["name"]: one["value"] for one in content["conditions"]}
    assert conditions["GPU"] == "NVIDIA H200"
    assert conditions["roofs"] == f"measured {WHEN[name]}, driver 580.159.04"
    assert set(tables["roofline"]["roof_from"].dropna()) == {"measured"}
    assert tables["roofline"]["roof_from"].notna().any()
    assert not any(gap["what"] == "measured roofs" for gap in content["missing"])


def test_what_stands_first_is_what_costs_most(program: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    name, content, tables = program
    titles = [finding["title"] for finding in content["findings"]]
    if name == "qwen":
        assert titles[:2] == ["decode waits for launches", "prefill waits for launches"]
    else:
        assert titles[0] == "unattributed: transpose: uncoalesced stores"
        assert "--kernel-id" in content["findings"][0]["sentence"]
        assert not any("far from its roof" in title for title in titles)
        kernels = tables["kernels"].set_index("kernel")
        assert kernels["launches"].to_dict() == {"transpose": 40, "sum": 40, "stencil": 40}


def test_a_few_launches_speak_for_all(program: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    name, _, tables = program
    counting = tables["counting"]
    assert counting["launches"].sum() == {"app": 120, "qwen": 1265}[name]
    assert counting["counted"].sum() == {"app": 6, "qwen": 134}[name]


# --- what it takes ---

ROOT = Path(__file__).resolve().parents[2]


def test_the_readmes_show_what_the_committed_runs_took() -> None:
    readme = (ROOT / profiles.README).read_text(encoding="utf-8")
    assert profiles.shown_in(readme, ROOT / profiles.OUT) == readme
    took = {run["run"]: run["all_s"] for run in profiles.read("runs.csv", ROOT / profiles.OUT)}
    said = f"GPT-2 took {took['gpt2-fresh']} s on an H200 the first time and {took['gpt2-again']} s after that"
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_goal_is_reached_or_its_miss_is_explained() -> None:
    for run in profiles.read("runs.csv", ROOT / profiles.OUT):
        assert not run["goal_s"] or float(run["all_s"]) <= float(run["goal_s"]) or run["note"], run["run"]


def test_a_run_replaces_an_earlier_one_of_its_name(tmp_path: Path) -> None:
    raw = tmp_path / "run/raw"
    raw.mkdir(parents=True)
    (raw / "stages.json").write_text('{"bare": {"seconds": 3.5}, "export": {"seconds": 1}, "report": {"seconds": 2}}')
    (raw / "count_plan.json").write_text('{"budget_s": 60, "launches": 10, "replayed": 4, "time_share": 0.995}')
    for name, columns in (("runs.csv", profiles.RUN), ("stages.csv", ("run", "stage", "seconds"))):
        (tmp_path / name).write_text(",".join(columns) + "\n")
    for seconds in ("9", "7"):
        named = {"run": "x", "what": "a program", "all_s": seconds}
        profiles.add(tmp_path / "run", named, tmp_path)
    (run,) = profiles.read("runs.csv", tmp_path)
    assert (run["all_s"], run["own_s"], run["time_share"], run["goal_s"]) == ("7", "3.5", "0.99", "")
    assert [row["seconds"] for row in profiles.read("stages.csv", tmp_path)] == ["3.5", "3.0"]
