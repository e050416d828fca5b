"""The layer profiler's tables: shares that add up, events against nsys, and what a damaged file gets."""

from typing import Any

import pandas as pd
import pytest

from analysis.capture.model import GPU_OPS_COLUMNS, RANGES_COLUMNS, Capture, as_table
from analysis.facts import Facts
from studies.layers import tables as layer_profile
from tests.declared import facts_of

pytestmark = pytest.mark.studies

NO_NSYS = layer_profile.build_agreement.empty()
SPREAD = {"p5": 9e5, "p50": 1e6, "p95": 2e6}


def component(name: str, total_ns: float, count: int = 10, base: bool = False) -> dict[str, Any]:
    return {"component": name, "path": f"m/{name}", "count": count, "total_ns": total_ns, "base": base}


def profile(name: str = "cache") -> dict[str, Any]:
    return {
        "name": name,
        "dtype": "float32",
        "clock": "CUDA events",
        "model": "GPT-2 from scratch",
        "prompt_tokens": 16,
        "new_tokens": 5,
        "runs": 2,
        "levels": [
            {
                "name": "model",
                "title": "Model level",
                "components": [
                    component("Total_Forward_Pass", 1e7, base=True),
                    component("All_Transformer_Blocks", 9e6),
                    component("LM_Head_Projection", 7e5),
                ],
            },
            {"name": "mlp", "title": "MLP", "components": [component("MLP", 4e6, 20, base=True), component("Activation", 1e6, 20)]},
        ],
        "instrument": [
            {"variant": "nothing", "events": 0, "forward_ns": SPREAD, "launch_ns": SPREAD, "count": 10},
            {"variant": "mlp", "events": 40, "forward_ns": {"p50": 1.2e6}, "launch_ns": SPREAD, "count": 10},
        ],
        "tokens": {"forward_avg_ns": 1e6, "blocks_avg_ns": 9e5, "wall_ns": SPREAD, "tokens_per_s": {"p50": 200.0, "p5": 190.0, "p95": 210.0}},
        "own_ns": 1900.0,
    }  # fmt: skip


def of(entry: dict[str, Any], agreement: pd.DataFrame) -> Facts:
    return facts_of(Capture(layer_profile={"profiles": [entry]}), {layer_profile.build_agreement: agreement})


def test_shares_add_up_to_the_base() -> None:
    table = layer_profile.build_profile(of(profile(), NO_NSYS))
    for _, rows in table.groupby(["profile", "level"]):
        assert rows["share_frac"].iloc[0] == 1
        assert rows["share_frac"].iloc[1:].sum() == pytest.approx(1)
    rest = table[table["component"] == layer_profile.BETWEEN]
    assert rest["total_ns"].tolist() == pytest.approx([3e5, 3e6])
    assert rest["avg_ns"].tolist() == pytest.approx([3e4, 1.5e5])
    assert table["nsys_share_frac"].isna().all()


def test_shares_by_nsys_stand_beside_those_by_events() -> None:
    """A base that has no marks in the capture is the part of its name, the whole forward pass, or all of its parent."""
    entry = profile()
    blocks = [component("Transformer_Block", 9e6, 120, base=True), component("MLP", 4e6, 120)]
    blocks[0]["path"] = "m/All_Transformer_Blocks/h.*"
    entry["levels"].insert(1, {"name": "block", "title": "Block", "components": blocks})
    timed = [("forward", "Total_Forward_Pass", 2, 500.0), ("model", "All_Transformer_Blocks", 2, 400.0)]
    timed += [("block", "MLP", 24, 10.0), ("mlp", "Activation", 24, 3.0)]
    agreement = pd.DataFrame(timed, columns=["level", "component", "instances", "nsys_ns"])
    table = layer_profile.build_profile(of(entry, agreement.assign(profile="cache, float32")))
    shares = table.set_index(["level", "component"])["nsys_share_frac"]
    assert shares["model"].tolist()[:2] == pytest.approx([1, 0.8])
    assert pd.isna(shares["model", "LM_Head_Projection"])  # not in the capture: unknown, and so is what lies between
    assert pd.isna(shares["model", layer_profile.BETWEEN])
    assert shares["block"].tolist() == pytest.approx([1, 240 / 800, 560 / 800])
    assert shares["mlp"].tolist() == pytest.approx([1, 0.3, 0.7])


# Events against nsys ---------------------------------------------------------------------------------------------


def transposed(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def captured(*, own_ns: int = 1900, extra: dict[str, int] | None = None) -> Capture:
    """Two steps of `cache.mlp`, each held back first, with kernels of 10 and 5 µs in `mlp/act`, and an empty `mlp/view`."""
    ranges, ops, events = [], [], []
    for step in range(2):
        at = step * 1_000_000
        opened = [
            ("hold", at, at + 100, 0),
            ("cache.mlp", at + 200, at + 900, 0),
            ("mlp", at + 210, at + 890, 1),
            ("act", at + 300, at + 400, 2),
            ("view", at + 500, at + 600, 2),
        ]
        stack: dict[int, tuple[int, str]] = {}
        for name, start, end, level in opened:
            number = len(ranges) + 1
            parent = stack.get(level - 1)
            path = f"{parent[1]}/{name}" if parent else name
            stack[level] = (number, path)
            ranges.append(
                {
                    "range_id": number,
                    "parent_id": parent[0] if parent else pd.NA,
                    "start_ns": start,
                    "end_ns": end,
                    "pid": 1,
                    "tid": 1,
                    "name": name,
                    "level": level,
                    "path": path,
                }
            )
        for name, launched, start, duration in (
            ("spin_kernel", at + 50, at + 60, 500_000),
            ("gelu", at + 310, at + 600_000, 10_000),
            ("gelu", at + 350, at + 611_000, 5_000),
        ):
            ops.append(
                {
                    "start_ns": start,
                    "duration_ns": duration,
                    "kind": "kernel",
                    "name": name,
                    "grid": "1x1x1",
                    "block": "32x1x1",
                    "device": "H200",
                    "api_start_ns": launched,
                    "api_end_ns": launched + 10,
                    "pid": 1,
                    "tid": 1,
                }
            )
        # from 600,000 to 616,000 ns there is work; the marks add own_ns
        events.append(("cache.mlp/mlp/act", step, "Activation", 16_000 + own_ns + (extra or {}).get("act", 0), own_ns))
        events.append(("cache.mlp/mlp/view", step, "View", 1_100, own_ns))
    names = ("range", "ordinal", "component", "event_ns", "own_ns")
    return Capture(
        ranges=as_table(transposed(ranges), RANGES_COLUMNS),
        gpu_ops=as_table(transposed(ops), GPU_OPS_COLUMNS),
        layer_events=pd.DataFrame(events, columns=list(names)),
        layer_profile={"profiles": [profile()]},
    )  # fmt: skip


def test_events_less_their_own_cost_are_compared_with_first_start_to_last_end() -> None:
    table = layer_profile.build_agreement(Facts(captured())).set_index("component")
    act = table.loc["Activation"]
    assert (act["instances"], act["read_ns"], act["own_ns"], act["event_ns"]) == (2, 17_900, 1_900, 16_000)
    assert (act["nsys_ns"], act["difference_ns"]) == (16_000, 0)
    assert act[["within_frac", "within_ns"]].tolist() == ["yes", "yes"]
    assert (act["profile"], act["level"]) == ("cache, float32", "mlp")
    view = table.loc["View"]  # no kernel: no time, by either
    assert (view["event_ns"], view["nsys_ns"], view["within_frac"], view["within_ns"]) == (0, 0, "yes", "yes")
    assert pd.isna(view["difference_frac"])


@pytest.mark.parametrize(
    ("off_ns", "within"),
    [
        (320, ["yes", "yes"]),
        (321, ["no", "yes"]),
        (2_000, ["no", "yes"]),
        (2_001, ["no", "no"]),
        (-2_001, ["no", "no"]),
    ],
)
def test_agreement_is_told_by_share_and_by_time(off_ns: int, within: list[str]) -> None:
    """Of 16 µs, 2 µs are 12.5 %: to be near in time says little of a short component."""
    table = layer_profile.build_agreement(Facts(captured(extra={"act": off_ns})))
    assert table.set_index("component").loc["Activation", ["within_frac", "within_ns"]].tolist() == within
    said = layer_profile.agreement_sentence(table)
    close, near = (1 + (answer == "yes") for answer in within)
    assert f"within 2% in {close} of 2 components of one and the same run, within 2 µs in {near};" in said
    assert f"{16 + off_ns / 1e3:.2f} µs by events and 16.00 µs by nsys ({off_ns / 16_000:+.0%})" in said
