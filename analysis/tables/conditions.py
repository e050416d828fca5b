"""List the conditions of the measurement. Without them, a reader cannot judge the numbers."""

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from analysis.capture.model import Capture
from analysis.hardware.devices import Attributes, same_gpu
from analysis.hardware.metrics import stands_in
from analysis.tables.declare import Facts, part
from analysis.tables.join import Joined

Ncu = dict[str, Any] | None  # the content of ncu's status files
_CLOCKS = (("SM clock", "sm_mhz", "MHz"), ("memory clock", "memory_mhz", "MHz"), ("power", "power_w", "W"))


def gpu_name(capture: Capture) -> str | None:
    """Return the GPU's name from the manifest, else from nsys or ncu; None for a run without a GPU."""
    gpu = (capture.manifest or {}).get("gpu") or {}
    if gpu.get("name"):
        return str(gpu["name"])
    for frame in (capture.gpu_ops, capture.counters):
        if names := _names_of_gpus(frame):
            return re.sub(r" \(\d+\)$", "", names[0])  # nsys adds the device's number
    if capture.sweep_rows is not None:
        swept = [name for name in capture.sweep_rows["gpu"].unique() if name]
        return str(swept[0]) if swept else None
    return capture.session.get("gpu")


def _names_of_gpus(frame: pd.DataFrame) -> list[str]:
    """Return the names of the GPUs in a table; ncu prints the device's number in place of nsys' name."""
    return [str(name) for name in frame["device"].dropna().unique() if name and not str(name).isdigit()]


def compute_capability(capture: Capture) -> str | None:
    """Return the compute capability as `9.0`, None if no file says it."""
    gpu = (capture.manifest or {}).get("gpu") or {}
    if gpu.get("compute_capability"):
        return str(gpu["compute_capability"])
    values = [value for value in capture.counters["cc"].dropna().unique() if value]
    stated = capture.gpu_attributes
    of_timeline = f"{stated['cc_major']:.0f}.{stated.get('cc_minor', 0):.0f}" if "cc_major" in stated else None
    return str(values[0]) if values else capture.session.get("cc") or of_timeline


def sm_count(capture: Capture) -> int | None:
    """Return the number of SMs of the GPU; None if the files name no number or several."""
    named = ("launch__sm_count", "device__attribute_multiprocessor_count")
    found = {float(value) for name in named if name in capture.counters for value in capture.counters[name].dropna()}
    found |= set(capture.details.loc[capture.details["label"] == "# SMs", "value"].dropna().astype(float))
    return int(found.pop()) if len(found) == 1 else None


def other_gpu(capture: Capture) -> str:
    """Return in words what the counters say of their GPU that contradicts the manifest; "" if nothing does."""
    gpu, counters = (capture.manifest or {}).get("gpu") or {}, capture.counters
    named = _names_of_gpus(counters)
    sms = counters.get("device__attribute_multiprocessor_count", pd.Series(dtype=float)).dropna().unique()
    pairs = [
        ("its name", gpu.get("name"), [name for name in named if not same_gpu(name, str(gpu.get("name")))]),
        ("CC", gpu.get("compute_capability"), [str(cc) for cc in counters["cc"].dropna().unique() if cc]),
        ("device__attribute_multiprocessor_count", gpu.get("sm_count"), [f"{count:.0f}" for count in sms]),
    ]
    other = [(what, said, one) for what, said, found in pairs if said for one in found if one != str(said)]
    return ", ".join(f"{what} is {one} there and {said} in the manifest" for what, said, one in other)


def attributes(capture: Capture) -> Attributes:
    """Return what the files state about the GPU: ncu's attributes or session page, the timeline, the manifest."""
    gpu, clocks = ((capture.manifest or {}).get(part) or {} for part in ("gpu", "clocks"))

    def first(metric: str, session: str, timeline: str = "", factor: float = 1.0) -> float | None:
        values = capture.counters[metric].dropna().tolist() if metric in capture.counters else []
        text = capture.session.get(session, "")
        stated = float(values[0]) if values else float(text) if re.fullmatch(r"[0-9.]+", text) else None
        return stated * factor if stated else capture.gpu_attributes.get(timeline)

    named = "device__attribute_"
    sms = sm_count(capture) or first(f"{named}multiprocessor_count", "sm_count", "sm_count") or gpu.get("sm_count")
    clock = first(
        f"{named}max_gpu_frequency_khz", "max_gpu_frequency_khz", "", _hertz(capture, "max_gpu_frequency_khz")
    )
    clock = clock or first(f"{named}clock_rate", "clock_rate_khz", "clock_hz", _hertz(capture, "clock_rate"))
    memory = first(
        f"{named}max_mem_frequency_khz", "max_mem_frequency_khz", "", _hertz(capture, "max_mem_frequency_khz")
    )
    memory = memory or first(
        f"{named}memory_clock_rate", "memory_clock_rate_khz", "", _hertz(capture, "memory_clock_rate")
    )
    stated = capture.gpu_attributes.get("dram_bytes_per_s", 0.0)
    dram, source = (
        (stated, "the timeline") if stated > _LEAST_DRAM else (_dram_of_percent(capture.counters), _OF_PERCENT)
    )
    return Attributes(
        cc=compute_capability(capture),
        sm_count=int(sms) if sms else None,
        clock_hz=clock or (float(clocks["sm_mhz"]["max"]) * 1e6 if clocks.get("sm_mhz") else None),
        memory_clock_hz=memory,
        bus_bits=first(f"{named}global_memory_bus_width", "bus_bits"),
        l2_bytes=first(f"{named}l2_cache_size", "l2_bytes", "l2_bytes"),
        memory_bytes=first(f"{named}total_memory", "memory_bytes", "memory_bytes"),
        dram_bytes_per_s=dram,
        dram_from=source,
    )


_LEAST_DRAM = 1e9  # byte/s; older exports hold another unit
_OF_PERCENT = "ncu's DRAM Throughput in percent of the peak, beside the bytes,"
_LEAST_BUSY = 20.0  # percent of the peak; below, two decimals make the peak too coarse


def _hertz(capture: Capture, attribute: str) -> float:
    """Return what a clock attribute of ncu has to be multiplied with: its unit may be converted already."""
    unit = capture.counter_units.get(f"device__attribute_{attribute}", "")
    return 1.0 if unit == "hz" else 1e3


def _dram_of_percent(counters: pd.DataFrame) -> float | None:
    """Return the DRAM bandwidth of which ncu states the percents that launches reach: byte/s; None if it is unknown."""
    percent = counters.get("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed")
    rate = counters.get("dram__bytes.sum.per_second")
    if rate is None and {"dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"} <= set(counters):
        moved = counters["dram__bytes_read.sum"] + counters["dram__bytes_write.sum"]
        rate = moved / counters["gpu__time_duration.sum"] * 1e9
    if percent is None or rate is None:
        return None
    peaks = (rate / percent * 100)[(percent >= _LEAST_BUSY) & (rate > 0)]
    return float(peaks.median()) if len(peaks) else None


@part("note")
def _without_dram_counters(facts: Facts) -> str | None:
    if not stands_in("dram_read_bytes", facts.capture.counters):
        return None
    return "ncu counts no DRAM bytes on this GPU. What L2 had to read, and all that the SMs wrote, stand for them."


@part("note")
def _by_capability(facts: Facts) -> str | None:
    device = facts.device
    if device and device.derived:
        return (
            f"{device.name} is not in the device table, so its roofs follow from the file: {'; '.join(device.derived)}."
        )
    if facts.gpu or device is None:
        return None
    return f"The file does not name its GPU; by compute capability and number of SMs it is {device.name}."


@part("title")
def title(facts: Facts) -> str:
    """Return the report's title."""
    capture, gpu = facts.capture, facts.gpu
    workloads = (capture.manifest or {}).get("workloads") or []
    is_ours = any(str(w.get("range", "")).startswith("gpt2") for w in workloads)
    what = "GPT-2" if is_ours else name_of_program(capture) or "Capture"
    by_layer = ", layer by layer" if capture.layer_profile else ""
    if gpu:
        return f"{what} on {gpu}{by_layer}"
    place, cc = where_it_ran(capture), compute_capability(capture)
    where = f" on a GPU of compute capability {cc}" if place == UNKNOWN and cc else _PLACES[place]
    return f"{what}{where}{by_layer}"


def command_of(status: Mapping[str, Any]) -> list[str]:
    """Return the words of the program in the content of nsys.json or ncu.json: what follows the tool's options."""
    words = [str(word) for word in status.get("command") or []]
    after = words[words.index("-o") + 2 :] if "-o" in words else []
    while after and after[0].startswith("-"):
        after = after[2 if after[1:2] in (["true"], ["false"]) else 1 :]
    return after


def user_command(status: Mapping[str, Any]) -> list[str]:
    """Return the words of the program as the user gave them: without what `make profile` runs it in."""
    words = command_of(status)
    if words[:2] == ["timeout", "-k"]:
        words = words[4:]
    if words[1:2] and words[1].endswith("within.py") and "--" in words:
        words = words[words.index("--") + 1 :]
    if words[:1] == ["env"] and any(word.startswith(_OUR_VARIABLES) for word in words):
        own = next(at for at in range(1, len(words) + 1) if at == len(words) or "=" not in words[at])
        kept = [word for word in words[1:own] if not word.startswith(_OUR_VARIABLES) and _OUR_RANGES not in word]
        words = [*(["env", *kept] if kept else []), *words[own:]]
    return words


_OUR_VARIABLES, _OUR_RANGES = "KERNEL_LEDGER_RANGES", "auto_ranges"  # of harness.profile.program.with_ranges
# Commands and modules that run another program.
_WRAPPERS = ("timeout", "nice", "env", "numactl", "stdbuf", "mpirun", "mpiexec", "srun")
_RUNS_SCRIPTS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_IS_OPTION = re.compile(r"-|[\d.]+[smhd]?$|\w+=")
_IS_MODULE = re.compile(r"[^\W\d][\w.]*")


def name_of_program(capture: Capture) -> str:
    """Return what the command runs, without its folder and interpreter: `train.py` of `python3 -u src/train.py -b 8`.

    Without a command, or with several programs, return "".
    """
    names = set()
    for words in filter(None, map(user_command, capture.tools)):
        script = next((word for word in words if word.endswith((".py", ".sh"))), "")
        before = words[: words.index(script)] if script else words  # a script has a -m of its own
        module = next((word for flag, word in itertools.pairwise(before) if flag == "-m"), "")
        module = module if _IS_MODULE.fullmatch(module) and module not in _RUNS_SCRIPTS else ""
        binary = next((word for word in words if word not in _WRAPPERS and not _IS_OPTION.match(word)), "")
        names.add(module or re.split(r"[\\/]", script or binary)[-1])
    return names.pop() if len(names) == 1 else ""


CPU, NO_KERNELS, UNKNOWN = "cpu", "no kernels", "unknown"
_PLACES = {CPU: " on the CPU", NO_KERNELS: ", kernels not recorded", UNKNOWN: ""}


def where_it_ran(capture: Capture) -> str:
    """Return CPU, or NO_KERNELS if the program used an accelerator and no file recorded its work, else UNKNOWN.

    The manifest of our own runs decides. For other files, the readers and the host's calls decide.
    """
    if len(capture.gpu_ops) or len(capture.counters):
        return UNKNOWN
    if capture.is_unrecorded or len(capture.summaries.get("cuda_api_sum", ())):
        return UNKNOWN if len(capture.nsys_kernel_sums) else NO_KERNELS
    own = capture.manifest or {}
    ours = bool(own) and not (own.get("gpu") or {}).get("name")
    return CPU if capture.clock == "cpu" or ours else UNKNOWN


_CONTROLS = ("cache_control", "clock_control", "replay_mode")


def ncu_status(capture: Capture) -> Ncu:
    """Return the content of ncu's status files: the first of several captures, with the conditions of the others."""
    found = [tool for tool in capture.tools if tool.get("tool") == "ncu"]
    together = {key: ", ".join(dict.fromkeys(tool[key] for tool in found if tool.get(key))) for key in _CONTROLS}
    return found[0] | together if found else None


@part("conditions")
def conditions_of_program(facts: Facts) -> list[dict[str, str]]:
    """Return the conditions of a run of one program."""
    capture = facts.capture
    roofs = capture.ceilings or {}
    when = f"measured {roofs['measured']}, driver {roofs.get('driver')}" if roofs.get("measured") else ""
    return list_conditions(capture, facts.gpu, facts.ncu, more=[("roofs", when)])


def list_conditions(
    capture: Capture, gpu: str | None, ncu: Ncu,
    manifest: Mapping[str, Any] | None = None, more: Iterable[tuple[str, Any]] = (),
) -> list[dict[str, str]]:  # fmt: skip
    """Return name and value of every known condition; an unknown one has no row.

    `manifest` replaces that of the capture if that covers only a part of the run. `more` are further conditions of the
    run.
    """
    manifest = (capture.manifest or {}) if manifest is None else manifest
    names = [f"{w.get('name')} {w.get('dtype', '')}".strip() for w in manifest.get("workloads") or []]
    card = (manifest.get("gpu") or {}).get("card")
    workload = ", ".join(dict.fromkeys(names))
    rows: list[tuple[str, Any]] = [("GPU", gpu), ("card", card), ("workload", workload), *more]
    clocks = manifest.get("clocks") or {}
    rows += list_spans(clocks)
    rows.append(("throttling", ", ".join(clocks.get("throttle_reasons") or [])))
    known = capture.session | {name: value for name, value in manifest.items() if value}
    rows += [(name, known.get(name)) for name in ("driver", "cuda", "torch", "nsys", "ncu")]
    source = (manifest.get("weights") or {}).get("source")
    rows.append(("weights", f"random, seed {manifest.get('seed')}" if source == "random" else source))
    for key in _CONTROLS:
        rows.append((f"ncu {key.replace('_', ' ')}", (ncu or {}).get(key) or capture.session.get(key)))
    commit = manifest.get("git_sha")
    changed = ", with uncommitted changes" if commit and manifest.get("git_dirty") is True else ""
    rows += [("locale", manifest.get("locale")), ("commit", f"{commit or ''}{changed}")]
    return [{"name": name, "value": str(value)} for name, value in rows if value]


def list_spans(clocks: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name and span of each sampled clock, and of the power; `clocks` as in a manifest."""
    return [
        (label, f"{seen['min']:g}–{seen['max']:g} {unit}, median {seen['median']:g}")
        for label, key, unit in _CLOCKS
        if (seen := clocks.get(key))
    ]


def coverage(
    capture: Capture, joined: Joined, launches: pd.DataFrame, has_counters: bool, has_ncu: bool, is_program: bool,
    evidence: str = "times",
) -> dict[str, Any]:  # fmt: skip
    """Return the part of the timeline with counters, as in report.json."""
    seen = int(joined.launches["requested"].sum()) if len(joined.launches) else 0
    swept = capture.sweep_rows
    has_times = is_program or swept is None or bool(swept["verdict"].eq("timed").any())
    rests = evidence if has_times else ""
    return {
        "sentence": coverage_sentence(joined.matched, seen, len(launches), joined.how, has_ncu, rests),
        "matched": joined.matched,
        "seen": seen,
        "frac": joined.matched / seen if seen and has_counters else None,
        "refused": int((joined.launches["refused"] != "").sum()) if has_counters and len(joined.launches) else 0,
    }


def coverage_sentence(matched: int, seen: int, total: int, how: str, has_counters: bool, evidence: str) -> str:
    """Return a sentence on the part of the timeline with counters, and on the method of matching.

    `evidence`: what a report without counters rests on, "" if nothing was timed.
    """
    if not evidence and not has_counters:
        return "No ncu counters, and nothing was timed: all evidence here is static."
    if not has_counters:
        return f"No ncu counters: all evidence here is {evidence}."
    if not total:
        return "No nsys timeline: counters stand alone, without the kernels' time in the running program."
    share = f" ({matched / seen:.1%})" if seen else ""
    return f"{matched} of {seen} requested launches{share} have counters; the timeline holds {total}. {how}"
