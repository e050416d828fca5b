"""Two programs of a user's as `make profile` captured them on an H200: what their reports say without any file of ours.

`app`   a CUDA program without NVTX ranges: an iterated stencil, a transposition and a sum, 120 launches
`qwen`  tests/gpu/counting/qwen_like.py: transformers, ranges by module hooks, 1,265 launches in its window
"""

from pathlib import Path
from typing import Any

import pytest

from analysis.capture.load import load
from tests.declared import analyse

WHEN = " The self-test ran at 2026-11-23T09:46Z, on this model of GPU with driver 580.159.04."
DATA = Path(__file__).parent / "data" / "profile"


@pytest.fixture(scope="module", params=["app", "qwen"])
def program(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The name of the program, the content of its report and the tables."""
    content, tables = analyse(load([DATA / request.param]))
    return request.param, content, tables


def test_kept_roofs_and_selftest_are_named(program: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    _, content, tables = program
    assert content["trust"]["status"] == "trusted"
    assert content["trust"]["sentence"].endswith(WHEN)
    conditions = {one["name"]: one["value"] for one in content["conditions"]}
    assert conditions["GPU"] == "NVIDIA H200"
    assert conditions["roofs"] == "measured 2026-11-23T09:46Z, driver 580.159.04"
    assert set(tables["roofline"]["roof_from"].dropna()) == {"measured"}
    assert tables["roofline"]["roof_from"].notna().any()
    assert not any(gap["what"] == "measured roofs" for gap in content["gaps"])


def test_what_stands_first_is_what_costs_most(program: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    name, content, tables = program
    titles = [finding["title"] for finding in content["findings"]]
    if name == "qwen":
        assert titles[:2] == ["decode waits for launches", "prefill waits for launches"]
    else:
        assert titles[0] == "unattributed: transpose is far from its roof"
        kernels = tables["kernels"].set_index("kernel")
        assert kernels["launches"].to_dict() == {"transpose": 40, "sum": 40, "stencil": 40}


def test_a_few_launches_speak_for_all(program: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    name, _, tables = program
    counting = tables["counting"]
    assert counting["launches"].sum() == {"app": 120, "qwen": 1265}[name]
    assert counting["counted"].sum() == {"app": 6, "qwen": 96}[name]
