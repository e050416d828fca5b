"""The rules of kernels: right on the development half, silent where they cannot know, and fast."""

import math
import re
import shlex
import tomllib
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.diagnosis import each
from analysis.diagnosis.again import PROGRAM, Program, captured_program, recapture
from analysis.diagnosis.each import _longest, _unsettled, mean_launches
from analysis.diagnosis.evidence import Evidence
from analysis.diagnosis.judge import Verdict, all_rules, judge
from analysis.diagnosis.kernel_rules.rule import Rule
from analysis.diagnosis.limits import Limits, find_limits
from analysis.diagnosis.vocabulary import NONE_AT_ROOF
from analysis.formats import symbols
from analysis.formats.report import kinds
from analysis.hardware.devices import Device, architectures, devices, find_by_capability, find_device
from kernels.specimens import registry
from kernels.specimens.registry import vocabulary
from studies.specimens import score
from tests.clock import within

H200 = find_device("NVIDIA H200")


pytestmark = pytest.mark.xdist_group("specimens")  # studies.specimens.score keeps what it has read


@pytest.fixture(scope="module")
def limits() -> Limits:
    found = find_limits(H200, 132)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def half() -> pd.DataFrame:
    return score.read_half(registry.DEVELOPMENT, score.DEFAULT)


@pytest.fixture(scope="module")
def scores() -> list[score.Score]:
    return score.score_kernels(registry.DEVELOPMENT, score.DEFAULT)


def test_default_metrics_find_most_causes_of_the_development_half(scores: list[score.Score]) -> None:
    found = score.figures(scores)
    right, of = found["first cause right"]
    assert of == 35
    assert right >= 0.8 * of
    assert found["clean kernels with advice"] == (0, 7)
    assert found["clean kernels right"] == (7, 7)


def test_the_timeline_finds_most_causes_of_the_development_half() -> None:
    found = score.score_timelines(registry.DEVELOPMENT)
    assert len(found) == len(vocabulary()["timeline"])
    assert sum(one.right for one in found) >= 11


def test_most_bounds_of_the_development_half_are_near() -> None:
    found = score.figures(score.score_kernels(registry.DEVELOPMENT, score.FULL))
    near, of = found["bound near"]
    assert near >= 0.7 * of
    assert found["achieved within the bound"] == (of, of)


def test_every_rule_names_a_word_of_the_vocabulary_and_every_word_has_a_rule() -> None:
    assert {rule.defect for rule in all_rules()} == set(vocabulary()["kernel"])
    for rule in all_rules():
        assert 0 < rule.sure < 1
        assert rule.because.endswith(".")
        assert rule.wrong_if.endswith(".")
        assert set(rule.cited)


def test_ncus_rules_are_mapped_to_the_vocabulary() -> None:
    entries = tomllib.loads(score.NCU_RULES.read_text("utf-8"))["rule"]
    assert {name for entry in entries for name in entry["defect"]} <= set(kinds())
    assert score.in_our_words("ThreadDivergence", "anything") == ("divergence",)
    assert score.in_our_words("IssueSlotUtilization", "anything") == ()


ALL = [device for device in devices() if find_limits(device, None)]


def test_limits_are_those_of_the_other_tables() -> None:
    """What kernels/sm_limits.toml says of the same capabilities, and clocks that a GPU can have."""
    assert {"7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"} == {device.cc for device in ALL}
    assert {device.cc for device in ALL} < set(architectures())
    table = tomllib.loads((registry.FOLDER.parent / "sm_limits.toml").read_text("utf-8"))
    for device in ALL:
        found = find_limits(device, None)
        assert found is not None
        assert 0.8e9 < found.sm_clock_hz < 3.2e9, device.name
        own = table["sm"].get(device.cc.replace(".", ""))
        if own:
            assert found.max_warps == own["warps"]
            assert found.reserved_shared_bytes == own["shared_reserved_bytes"]
            assert found.shared_bytes == own["shared_bytes"]
            assert (found.registers, found.schedulers) == (table["common"]["registers"], table["common"]["partitions"])
    assert [device.cc for device in ALL if not find_limits(device, None).unknown] == ["9.0"] * 4  # type: ignore[union-attr]


@pytest.mark.parametrize(("cc", "sm_count"), sorted({(one.cc, one.sm_count) for one in ALL}))
def test_a_figure_in_which_gpus_of_one_kind_differ_is_unknown(cc: str, sm_count: int) -> None:
    device = find_by_capability(cc, sm_count)
    found = find_limits(device, sm_count)
    assert device is not None
    assert found is not None
    assert math.isnan(found.sm_clock_hz) == (device.fp32_flop_per_s is None)
    assert math.isnan(found.l2_size_bytes) == (device.l2_bytes is None)


def test_some_gpus_of_one_kind_differ_in_their_clock() -> None:
    assert any(find_by_capability(one.cc, one.sm_count).fp32_flop_per_s is None for one in ALL)  # type: ignore[union-attr]


@pytest.mark.parametrize("device", [one for one in ALL if one.cc != "9.0"], ids=lambda one: one.name)
def test_what_is_not_known_of_a_capability_names_no_cause(half: pd.DataFrame, device: Device) -> None:
    """Rules that need a latency stand aside; what else is named has a bound, and the row says which figures lack."""
    other = find_limits(device, None)
    assert other is not None
    found = judge(half, other)
    told = [one for row in range(len(half)) for one in found.of(row)]
    assert all(one.weighed for one in told if one.defect in ("pointer_chasing", "global_atomics_one_address"))
    assert all(0 <= one.gain < 1 for row in range(len(half)) for one in found.of(row))
    assert _unsettled(found, 0).endswith(f"not known of compute capability {device.cc}: {', '.join(other.unknown)}")


def test_the_roof_is_that_of_the_gpu_at_hand(half: pd.DataFrame) -> None:
    """A copy at the DRAM roof of an A100: bytes and time of the H200's, scaled by the two datasheets."""
    a100, h200 = find_device("NVIDIA A100-SXM4-80GB"), H200
    assert a100 is not None
    assert h200 is not None
    limits = find_limits(a100, None)
    assert limits is not None
    rows = half.loc[["development/clean/dram_copy"]]
    slower = rows.assign(duration_ns=rows["duration_ns"] * h200.dram_bytes_per_s / a100.dram_bytes_per_s)
    assert [one.defect for one in judge(slower, limits).of(0)] == [NONE_AT_ROOF]


def test_a_kernel_says_what_its_metrics_leave_open(half: pd.DataFrame, limits: Limits) -> None:
    rows = half.loc[["development/divergence/slow"]]
    default = judge(rows, limits).unsettled(0)
    assert "divergence" in default
    assert "dependent_chain" not in default
    known = rows.assign(threads_per_inst=31.0, spill_inst=0.0)
    assert not {"divergence", "register_spills"} & set(judge(known, limits).unsettled(0))
    lacking = judge(rows.assign(stall_wait=np.nan), limits)
    assert "dependent_chain" in lacking.unsettled(0)


def test_full_sections_leave_little_open() -> None:
    """What full sections lack does not apply to a kernel: nothing of them is asked for again."""
    rows = score.read_half(registry.VALIDATION)
    found = judge(rows, score.limits())
    full = rows["threads_per_inst"].notna().to_numpy().nonzero()[0]
    assert len(full) >= 42
    assert not any({"divergence", "shared_bank_conflicts", "local_array"} & set(found.unsettled(row)) for row in full)


def test_a_cause_that_was_named_wrongly_claims_no_more_than_its_record() -> None:
    """A family of verdicts with a miss claims less than 80 %, or no more than the rule of succession gives it."""
    found = [one for half in registry.SETS for one in score.score_kernels(half, score.FULL) if one.verdicts]
    record: dict[tuple[str, str, str], list[bool]] = {}
    for one in found:
        record.setdefault(_family(one.verdicts[0]), []).append(one.right)
    assert not all(map(all, record.values()))
    for one in found:
        first, right = one.verdicts[0], record[_family(one.verdicts[0])]
        most = (sum(right) + 1) / (len(right) + 2)  # Laplace's rule of succession
        assert first.sure < score.SURE or all(right) or first.sure <= most, (_family(first), first.sure, right)


def _family(verdict: Verdict) -> tuple[str, str, str]:
    """Return what verdicts of one certainty share: the cause, the capture that it rests on, and the roof."""
    roof = verdict.cells[0][0].partition(" ")[0] if verdict.defect == NONE_AT_ROOF else ""
    return verdict.defect, verdict.tier, roof


@pytest.mark.parametrize(
    ("kernel", "bits"),
    [
        ("attention_v03_tiled<__nv_bfloat16>", True),
        ("void gemm<c10::Half, 8>(c10::Half const*)", True),
        ("cutlass::Kernel<cutlass::bfloat16_t>", True),
        ("tile(const __half *, int)", True),
        ("halfway<float>", False),
        ("split_half_kernel<float>", False),
        (None, False),
    ],
)
def test_a_name_tells_types_of_16_bits(half: pd.DataFrame, limits: Limits, kernel: str | None, bits: bool) -> None:
    rows = half.head(1).assign(kernel=pd.Series([kernel], index=half.index[:1], dtype="object"))
    assert Evidence(rows, limits).of_16_bits.tolist() == [bits]
    assert Evidence(rows.drop(columns="kernel"), limits).of_16_bits.tolist() == [False]


def test_busy_arithmetic_pipes_bound_what_fewer_lanes_win(limits: Limits) -> None:
    """A kernel that keeps the pipe of integers full cannot win more than the instructions that go."""
    name = "holdout/divergence/slow"
    rows = score.read_half(registry.HOLDOUT).loc[[name]]
    with_pipe, without = (judge(one, limits).of(0)[0] for one in (rows, rows.drop(columns="alu_active_frac")))
    assert with_pipe.defect == without.defect == "divergence"
    assert with_pipe.gain < without.gain


# --- bad input ---


def with_cell(rows: pd.DataFrame, column: str, value: float) -> pd.DataFrame:
    return rows.assign(**{column: value})


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if len(rule.needs) > 1], ids=lambda rule: rule.defect)
def test_half_of_a_rules_metrics_are_not_enough(half: pd.DataFrame, limits: Limits, rule: Rule) -> None:
    """Every second metric of a rule is missing in all kernels: this rule fires of none."""
    lacking = half.assign(**dict.fromkeys(rule.needs[1::2], np.nan))
    found = judge(lacking, limits, [rule])
    assert [place for place in found.rule if place >= 0] == []


@pytest.mark.parametrize("value", [np.inf, -1.0])
@pytest.mark.parametrize("name", ["dram_read_bytes", "inst_issued", "occupancy_achieved_frac"])
def test_counters_that_no_gpu_can_count_are_contradictory(
    half: pd.DataFrame, limits: Limits, name: str, value: float
) -> None:
    found = judge(with_cell(half, name, value), limits)
    assert len(found.rows) == 0
    assert all(why.startswith("contradictory counters") for why in found.why)


def test_pages_that_contradict_each_other_give_no_certain_cause(half: pd.DataFrame, limits: Limits) -> None:
    """The page of full sections counts spills, the default metrics no byte of local memory; and the reverse."""
    name = "development/register_spills/slow"
    rows = with_cell(half.loc[[name]], "spill_inst", 1e6)
    assert judge(rows, limits).of(0)[0].defect == "register_spills"
    without = judge(with_cell(rows, "local_bytes", 0.0), limits)
    assert not {"register_spills", "local_array"} & {one.defect for one in without.of(0)}
    other = judge(with_cell(rows, "spill_inst", 0.0), limits)
    assert "register_spills" not in {one.defect for one in other.of(0)}


def test_ten_thousand_kernels_are_judged_in_a_second(half: pd.DataFrame, limits: Limits) -> None:
    rows = pd.concat([half] * (10_000 // len(half) + 1), ignore_index=True).head(10_000)
    found = within(1, lambda: judge(rows, limits))
    assert len(found.rows) > 5_000
    assert len(found.why) == 10_000


def test_the_longest_launch_is_captured_again() -> None:
    measured = pd.DataFrame(
        {
            "kernel": ["f<float>", "f<int>", "f<float>", "g"], "range": "step", "path": ["a/b", "a/b", "a/b", "a/c"],
            "grid": "1x1x1", "block": "32x1x1", "duration_ns": [5.0, 9.0, 7.0, 1.0], "counters_from": "measured",
            "occupancy_achieved_frac": [0.5, 0.1, 1.0, np.nan],
        }
    )  # fmt: skip
    mean = mean_launches(measured).set_index("kernel")
    assert mean.loc["f<float>", "in_path"] == 2  # ncu matches f<int> by the same name
    assert mean.loc["f<float>", "launches"] == 2
    assert mean.loc["f<float>", "occupancy_achieved_frac"] == pytest.approx((5 * 0.5 + 7) / 12)
    assert recapture("f<float>", ["[a/b]"], 2, Program("./app --steps 3", window=True)) == (
        "ncu --set full --import-source yes --clock-control none --profile-from-start off --nvtx --nvtx-include '[a/b]' "
        "--kernel-name-base function --kernel-id '::regex:^f$:3' --launch-count 1 -f -o kernel ./app --steps 3"
    )


LAUNCHED = (  # function as the driver names it, its NVTX stack, whether it lies in the profiler's window
    ("void ns::f<float>(int)", "a/b", False),
    ("void ns::f<float>(int)", "a/b", True),
    ("void ns::f<int>(int)", "a/b", True),
    ("void ns::f<float>(int)", "a", True),
    ("g(int)", "a/b", True),
    ("void ns::f<float>(int)", "a/b", True),
    ("void f2(int)", "a/b", True),
    ("void ns::f<float>(int)", "", True),
)


def selected_by_ncu(command: str) -> list[int]:
    """The launches of LAUNCHED that a command of ncu profiles, by the rules of ncu 2025.3."""
    words = shlex.split(command)
    options = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("--")}
    include = [words[at + 1] for at, word in enumerate(words) if word == "--nvtx-include"]
    assert options["--kernel-name-base"] == "function"
    assert (options["--set"], options["--clock-control"]) == ("full", "none")
    expression, number = re.fullmatch(r"::regex:(.*):(\d+)", options["--kernel-id"]).groups()  # type: ignore[union-attr]
    found: list[int] = []
    seen: dict[str, int] = {}
    for place, (name, stack, inside) in enumerate(LAUNCHED):
        wanted = not include or any(
            stack == one[1:-1] if one.startswith("[") else one.rstrip("/") in stack.split("/") for one in include
        )
        function = symbols.base(name)
        if ("--profile-from-start" in options and not inside) or not wanted or not re.search(expression, function):
            continue
        seen[function] = seen.get(function, 0) + 1
        if seen[function] == int(number):
            found.append(place)
    return found[: int(options["--launch-count"])]


@pytest.mark.parametrize(("window", "include"), [(True, ()), (True, ("a/",)), (False, ())])
def test_the_command_captures_exactly_the_launch_that_it_is_for(window: bool, include: tuple[str, ...]) -> None:
    """Repeated names, template instances, a name that begins another's, launches outside of the window."""
    kept = [
        place for place, (_, stack, inside) in enumerate(LAUNCHED)
        if (inside or not window) and (not include or "a" in stack.split("/"))
    ]  # fmt: skip
    for chosen in kept:
        name, stack, _ = LAUNCHED[chosen]
        same = [place for place in kept if symbols.base(LAUNCHED[place][0]) == symbols.base(name) and place < chosen]
        in_path = sum(LAUNCHED[place][1] == stack for place in same)
        program = Program(window=window, include=include)
        assert selected_by_ncu(recapture(name, include, len(same), program)) == [chosen]
        if "/" in stack:
            assert selected_by_ncu(recapture(name, [f"[{stack}]"], in_path, program)) == [chosen]


def test_the_program_is_that_of_the_capture() -> None:
    status = {
        "command": ["ncu", "--nvtx", "-f", "-o", "r/raw/counters", "python3", "app.py", "two words"],
        "window": "profiler", "nvtx_include": ["step/"],
    }  # fmt: skip
    found = captured_program(status)
    assert found == Program("python3 app.py 'two words'", window=True, include=("step/",))
    assert captured_program({}) == Program(PROGRAM)
    assert captured_program({"command": ["ncu", "--mode", "attach"], "window": "all"}) == Program(PROGRAM)


@pytest.mark.parametrize("name", ["k" * 300, "ns::(anonymous namespace)::f<int>", "void op::operator()<f>(x)", "a b"])
def test_odd_names_are_still_one_word_of_the_shell(name: str) -> None:
    words = shlex.split(recapture(name, (), 0, Program()))
    expression = words[words.index("--kernel-id") + 1].removeprefix("::regex:").removesuffix(":1")
    assert re.search(expression, symbols.base(name))


def test_the_longest_launch_of_a_kernel_is_found_without_copying_the_counters_of_all() -> None:
    launches, counters = 20_000, 200  # 32 MB of counters
    columns = {f"counter_{at}": np.full(launches, np.nan) for at in range(counters)}
    measured = pd.DataFrame({"kernel": "k", "path": "step", "nsys_time_ns": np.arange(launches) % 7, **columns})
    tracemalloc.start()
    found = _longest(measured, {"k"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.to_dict("records") == [{"kernel": "k", "path": "step", "in_path": 19_998, "in_all": 19_998}]
    assert peak < 8e6


def test_the_longest_launch_of_a_kernel_has_the_numbers_of_all_launches() -> None:
    random = np.random.default_rng(3)
    names = [f"k<{number}>" for number in range(4)] + ["other"]
    rows = pd.DataFrame(
        {
            "kernel": random.choice(names, 400),
            "path": random.choice(["", "step", "step/a"], 400),
            "nsys_time_ns": pd.array(random.integers(1, 50, 400), dtype="Int64"),
        }
    )
    numbered = each._numbered(rows)
    wanted = {"k<1>", "k<3>", "other", "absent"}
    expected = numbered.sort_values("nsys_time_ns", kind="stable").drop_duplicates("kernel", keep="last")
    expected = expected[expected["kernel"].isin(wanted)].set_index("kernel").sort_index()
    found = each._longest(rows, wanted).set_index("kernel").sort_index()
    assert found.to_dict() == expected[["path", "in_path", "in_all"]].to_dict()


@pytest.mark.parametrize(
    ("specimen", "kernel", "named"),
    [
        ("shared_bank_conflicts/slow", "transpose_tiles(float *)", "shared_bank_conflicts"),
        ("register_spills/slow", "blend(float *)", "register_spills"),
        ("register_spills/slow", "cutlass_80_simt_sgemm_128x64_8x5_nn_align1", ""),  # nobody else sets its registers
        ("uncoalesced_loads/slow", "cutlass_80_simt_sgemm_128x64_8x5_nn_align1", "uncoalesced_loads"),  # its caller can
    ],
)
def test_counters_name_the_cause_and_a_name_only_who_can_act_on_it(
    half: pd.DataFrame, limits: Limits, specimen: str, kernel: str, named: str
) -> None:
    found = judge(half.loc[[f"development/{specimen}"]].assign(kernel=kernel), limits).of(0)
    assert [one.defect for one in found[:1]] == [named] * bool(named)


def test_a_rule_whose_refutation_holds_does_not_speak(half: pd.DataFrame, limits: Limits) -> None:
    rule = next(one for one in all_rules() if one.defect == "uncoalesced_loads" and one.refutes is not None)
    name = "development/uncoalesced_loads/slow"
    spoken = {one.defect for one in judge(half.loc[[name]], limits, [rule]).of(0)}
    never = replace(rule, refutes=lambda e: np.ones(len(e.rows), bool))
    assert spoken == {"uncoalesced_loads"}
    assert judge(half.loc[[name]], limits, [never]).of(0) == []
