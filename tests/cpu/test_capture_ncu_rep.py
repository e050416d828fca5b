"""Binary reports of ncu through a stand-in for NVIDIA's package: its interface, without a GPU or a report."""

import sys
import types
from pathlib import Path

import pytest

from analysis.capture import ncu_rep, sniff
from analysis.capture.load import load
from analysis.facts import Facts
from analysis.formats.errors import InputError

MAGIC = b"NVR\0"


class Ids:
    def __init__(self, ids):
        self.ids = ids

    def value(self, at):
        return self.ids[at]


class Metric:
    """IMetric: a value, its unit, and instances with correlation ids."""

    def __init__(self, value, unit="", instances=None, empty=False):
        self._value, self._unit, self.instances, self.empty = value, unit, instances or {}, empty

    def has_value(self):
        return not self.empty

    def value(self, at=None):
        return self._value if at is None else list(self.instances.values())[at]

    def unit(self):
        return self._unit

    def num_instances(self):
        return len(self.instances)

    def has_correlation_ids(self):
        return bool(self.instances)

    def correlation_ids(self):
        return Ids(list(self.instances))


class Domain:
    def __init__(self, name, ranges):
        self._name, self.ranges = name, ranges

    def name(self):
        return self._name

    def push_pop_ranges(self):
        return tuple(self.ranges)


class Nvtx:
    def __init__(self, domains):
        self.by_id = dict(enumerate(domains))

    def domains(self):
        return tuple(self.by_id)

    def domain_by_id(self, index):
        return self.by_id[index]


class Rule:
    """IRuleResult"""

    def __init__(self, message, kind, speedup=None):
        self.message, self.kind, self.speedup = message, kind, speedup

    def rule_identifier(self):
        return "R"

    def section_identifier(self):
        return "Occupancy"

    def has_rule_message(self):
        return self.message is not None

    def rule_message(self):
        return {"title": "", "message": self.message, "type": self.kind}

    def has_speedup_estimation(self):
        return self.speedup is not None

    def speedup_estimation(self):
        return {"type": 2, "speedup": self.speedup}


class Line:
    def file_name(self):
        return "/home/someone/src/k.cu"

    def line(self):
        return 2


class Action:
    """IAction: one launch."""

    NameBase_DEMANGLED = 1

    def __init__(self, name, metrics, nvtx=None, rules=()):
        self._name, self.metrics, self.nvtx, self.rules = name, metrics, nvtx, rules

    def name(self, base=0):
        return self._name

    def metric_names(self):
        return tuple(self.metrics)

    def metric_by_name(self, name):
        return self.metrics.get(name)

    def nvtx_state(self):
        return self.nvtx

    def rule_results(self):
        return self.rules

    def source_info(self, address):
        return Line() if address < 0x30 else None

    def sass_by_pc(self, address):
        return f"      I{address} "

    def source_files(self):
        return {"/home/someone/src/k.cu": "first\nint x = 1;\n"}


def launch(name="k<4>", duration=31872.0, **more):
    metrics = {
        "gpu__time_duration.sum": Metric(duration, "second"),  # 2024.1 says second where the value is nanoseconds
        "sm__cycles_elapsed.avg.per_second": Metric(1.0e9, "cycle_per_second"),
        "launch__registers_per_thread": Metric(34, "register_per_thread"),
        "launch__func_cache_config": Metric("CachePreferNone"),
        "device__attribute_display_name": Metric("NVIDIA RTX A4500"),
        "device__attribute_compute_capability_major": Metric(8),
        "device__attribute_compute_capability_minor": Metric(6),
        "PM.Triage.x__y.sum": Metric(0.0, "", {}, empty=True),
        "inst_executed": Metric(7, "inst", {0x10: 4, 0x20: 3, 0x30: 0}),
        "smsp__pcsamp_sample_count": Metric(5, "", {0x10: 5}),
        "smsp__pcsamp_warps_issue_stalled_wait": Metric(2, "warp", {0x10: 2}),
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard": Metric(3, "warp", {0x10: 3}),
        "smsp__pcsamp_warps_issue_stalled_wait_not_issued": Metric(1, "warp", {0x10: 1}),
        "sass__inst_executed_per_opcode": Metric(7.0, "", {"IMAD": 4, "EXIT": 3}),
    }
    metrics |= {f"launch__{what}_dim_{axis}": Metric(2.0) for what in ("grid", "block") for axis in "xyz"}
    return Action(name, metrics | more.pop("metrics", {}), **more)


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Installs a stand-in that loads the given launches; returns the path of the report."""

    def install(*ranges, error=None):
        def load_report(path):
            assert Path(path).read_bytes().startswith(MAGIC)
            if error:
                raise error
            part = lambda actions: types.SimpleNamespace(  # noqa: E731
                num_actions=lambda: len(actions), action_by_idx=lambda at: actions[at]
            )
            return types.SimpleNamespace(
                num_ranges=lambda: len(ranges), range_by_idx=lambda at: part(ranges[at])
            )  # fmt: skip

        monkeypatch.setitem(sys.modules, "ncu_report", types.SimpleNamespace(load_report=load_report))
        monkeypatch.setattr(ncu_rep, "installed", lambda: True)
        path = tmp_path / "r"
        path.write_bytes(MAGIC + b"rest")
        return path

    return install


def test_launches_in_base_units_whatever_unit_says(package):
    nvtx = Nvtx([Domain("<default domain>", ["gpt2", "h.0"]), Domain("torch", ["inner"])])
    capture = load([package([launch(nvtx=nvtx)], [launch("other")])])
    row = capture.counters.iloc[0]
    assert (row["ncu_id"], row["name"], row["grid"], row["block"]) == (0, "k<4>", "2x2x2", "2x2x2")
    assert (row["device"], row["cc"], row["path"]) == ("NVIDIA RTX A4500", "8.6", "gpt2/h.0/torch:inner")
    assert row["gpu__time_duration.sum"] == 31872.0
    assert row.isna()["PM.Triage.x__y.sum"]
    assert capture.counters["path"].tolist()[1] == ""
    assert capture.counters["ncu_id"].tolist() == [0, 1]
    units = capture.counter_units
    assert (units["gpu__time_duration.sum"], units["sm__cycles_elapsed.avg.per_second"]) == ("ns", "hz")
    assert units["launch__registers_per_thread"] == "register/thread"
    assert "launch__func_cache_config" not in capture.counters


def test_rules_lines_and_instances(package):
    said = "See @section:X:Source Counters@ and @url:the guide:https://a.b/c@ in @source:/home/me/k.cu:3:line 3@ of /tmp/x/y.cu"
    rules = [Rule(said, 2, 31.07), Rule("info", 1), Rule(None, 1)]
    capture = load([package([launch(rules=rules)])])
    assert capture.rules["text"].tolist() == [
        "See Source Counters and the guide (https://a.b/c) in line 3 of y.cu", "info",
    ]  # fmt: skip
    assert capture.rules["type"].tolist() == ["OPT", "INF"]
    assert capture.rules["speedup_type"].tolist() == ["global", ""]
    assert capture.rules["section_title"].tolist() == ["Occupancy"] * 2
    lines = capture.source_lines
    assert lines["instruction"].tolist()[:3] == [0, 1, 2]
    assert lines["source_file"].tolist()[:3] == ["k.cu", "k.cu", ""]
    assert lines.iloc[0][["samples", "samples_not_issued", "inst_executed", "stall", "stall_samples"]].tolist() == [
        5, 1, 4, "long_scoreboard", 3,
    ]  # fmt: skip
    assert lines["text"].tolist() == ["I16", "I32", "I48", "int x = 1;"]
    assert capture.metric_instances[["instance", "value"]].to_numpy().tolist() == [["IMAD", 4.0], ["EXIT", 3.0]]
    assert "someone" not in lines.to_csv()
    from analysis.tables.source import build_source

    table = build_source(Facts(capture))
    assert table[["place", "text", "samples"]].to_numpy().tolist() == [["k.cu:2", "int x = 1;", 5]]


def test_bytes_that_are_no_text_do_no_harm(package):
    bad = "k\udc97"
    nvtx = Nvtx([Domain("<default domain>", [bad])])
    capture = load([package([launch(bad, nvtx=nvtx, rules=[Rule(bad, 1)])])])
    assert capture.counters[["name", "path"]].iloc[0].tolist() == ["k?", "k?"]
    for frame in (capture.counters, capture.rules, capture.source_lines, capture.metric_instances):
        frame.to_csv().encode()


def test_a_crashed_launch_of_a_report_is_named(package):
    nothing = {
        name: Metric(0.0, empty=True) for name in launch().metrics if not name.startswith(("launch__", "device__"))
    }
    capture = load([package([launch(), launch("sigma", metrics=nothing)])])
    assert capture.counters["ncu_id"].tolist() == [0]
    assert any("1 of 2 kernels" in gap.what and "sigma" in gap.why for gap in capture.missing)


@pytest.mark.parametrize(
    ("ranges", "error", "says"),
    [
        ([], None, "finds no kernel in it"),
        ([[launch()]], RuntimeError("Failed to load /home/someone/x.ncu-rep\nmore"), "cannot read this ncu report"),
    ],
)
def test_a_report_that_cannot_be_read_says_how_to_export_it(package, ranges, error, says):
    with pytest.raises(InputError, match=says) as caught:
        load([package(*ranges, error=error)])
    assert "ncu --import" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "someone" not in str(caught.value)


def test_without_the_package_one_sentence_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(ncu_rep, "installed", lambda: False)
    path = tmp_path / "r"
    path.write_bytes(MAGIC)
    assert sniff.sniff(path).kind == "binary"
    with pytest.raises(InputError, match=r"pip install ncu-report.*ncu --import"):
        load([path])
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    assert ncu_rep.package() is None
    with pytest.raises(InputError, match="pip install ncu-report"):
        ncu_rep.read_report(path, "r")
