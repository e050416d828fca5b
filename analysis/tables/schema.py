"""The output tables as data: one declaration from which writers, report.json and analysis/README.md derive."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

TIERS = ("static", "timing", "counters")


@dataclass(frozen=True)
class Column:
    """A column: its unit is part of its name where it has one; `unit` repeats it for machines."""

    name: str
    unit: str
    description: str


@dataclass(frozen=True)
class Table:
    """A table answers one question. `columns` excludes `tier`, which every table ends with."""

    name: str
    question: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns] + ["tier"]

    def conform(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return `rows` with exactly the declared columns in their declared order.

        Raises: ValueError naming the missing or unknown columns (a defect of the caller, not of the input).
        """
        missing = [name for name in self.column_names if name not in rows]
        unknown = [name for name in rows if name not in self.column_names]
        if missing or unknown:
            raise ValueError(f"table {self.name}: missing {missing}, unknown {unknown}")
        return rows[self.column_names].reset_index(drop=True)

    def empty(self) -> pd.DataFrame:
        return pd.DataFrame(columns=self.column_names)


TIER = Column("tier", "", "evidence: static (compiler), timing (nsys, events), counters (ncu)")

_LAYER_COLUMNS = (
    Column("range", "", "range names from the outermost to the innermost, joined with /"),
    Column("calls", "1", "instances of the range"),
    Column("cpu_time_ns", "ns", "sum of the ranges' own duration on the CPU: it times the launches, not the GPU"),
    Column("gpu_time_ns", "ns", "time of the kernels launched inside, nested ranges included"),
    Column("gpu_self_time_ns", "ns", "time of the kernels whose innermost range this is"),
    Column("launches", "1", "kernels launched inside, nested ranges included"),
    Column(
        "share_frac",
        "0-1",
        "gpu_time_ns over all kernel time of the capture; in a CPU run cpu_time_ns over the outermost ranges'",
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("layers_folded", "Which kind of layer takes the time, repeated layers as one?", _LAYER_COLUMNS),
        Table("layers", "Which range takes the time?", _LAYER_COLUMNS),
        Table(
            "kernels",
            "Which kernels run in which layer, how long, and how full is the GPU?",
            (
                Column("kernel", "", "kernel name as both tools agree on it: no return type, parameters or casts"),
                Column("range", "", "innermost range, repeated layers folded (h.*)"),
                Column("grid", "blocks", "grid dimensions, XxYxZ"),
                Column("block", "threads", "block dimensions, XxYxZ"),
                Column("launches", "1", "launches that nsys saw (ncu, if there is no timeline)"),
                Column(
                    "nsys_time_ns",
                    "ns",
                    "sum over the row's launches, as nsys timed them in the running program",
                ),
                Column(
                    "ncu_time_ns",
                    "ns",
                    "the same sum as ncu timed them, replayed alone; blank unless ncu has them all",
                ),
                Column(
                    "share_frac",
                    "0-1",
                    "nsys_time_ns over all kernel time of the capture (ncu_time_ns if there is no timeline)",
                ),
                Column("registers", "1/thread", "registers per thread"),
                Column(
                    "occupancy_theoretical_frac",
                    "0-1",
                    "resident warps that resources allow, over the maximum",
                ),
                Column(
                    "occupancy_achieved_frac",
                    "0-1",
                    "warps actually resident, mean over the measured launches",
                ),
            ),
        ),
        Table(
            "roofline",
            "How far is each kernel from the roof over it?",
            (
                Column("kernel", "", "kernel name"),
                Column("range", "", "folded range"),
                Column(
                    "level",
                    "",
                    "whose bytes: dram, l2 (between L2 and the SMs) or l1 (global and local accesses)",
                ),
                Column(
                    "flops",
                    "FLOP",
                    "floating-point operations of the measured launches, all pipes but the special functions",
                ),
                Column("bytes", "byte", "bytes moved at this level by the measured launches"),
                Column("intensity_flop_per_byte", "FLOP/byte", "flops over bytes"),
                Column("achieved_flop_per_s", "FLOP/s", "flops over ncu time"),
                Column(
                    "roof_flop_per_s",
                    "FLOP/s",
                    "lower of measured bandwidth (at DRAM for the row's reads and writes) x intensity and "
                    "measured compute peak, medians of ceilings.json; blank for kernels without FLOPs",
                ),
                Column(
                    "roof_datasheet_flop_per_s",
                    "FLOP/s",
                    "the same from the datasheet; blank where it gives none",
                ),
                Column(
                    "roof_frac",
                    "0-1",
                    "achieved over measured roof; for kernels without FLOPs bytes/s over bandwidth",
                ),
                Column("bound", "", "memory or compute: which of the two measured roofs is the lower here"),
            ),
        ),
        Table(
            "stalls",
            "What do the warps of each kernel wait for?",
            (
                Column("kernel", "", "kernel name"),
                Column("range", "", "folded range"),
                Column("reason", "", "stall reason, named as in its family"),
                Column(
                    "share_frac",
                    "0-1",
                    "share of all stalls, launches weighted by issued instructions (counters) or samples, without "
                    "`selected`",
                ),
                Column(
                    "family",
                    "",
                    "counters: warps per issued instruction; samples: of the program counter. Never mixed in a kernel",
                ),
            ),
        ),
        Table(
            "rules",
            "What does ncu itself say of each kernel?",
            (
                Column("kernel", "", "kernel name"),
                Column("range", "", "folded range"),
                Column("section", "", "section of ncu that the rule belongs to"),
                Column("rule", "", "name of the rule"),
                Column("type", "", "OPT: to improve, WRN: warning, INF: information, ERR: the rule failed"),
                Column("speedup_frac", "0-1", "speed-up that ncu estimates, the largest of the launches"),
                Column("speedup_type", "", "global: of the kernel; local: of the part the rule looks at"),
                Column("launches", "1", "launches of which it says so"),
                Column("text", "", "what ncu says, with the numbers of the launch with the largest estimate"),
            ),
        ),
        Table(
            "source",
            "Which source lines are the hottest?",
            (
                Column("kernel", "", "kernel name"),
                Column("range", "", "folded range, where the capture says which launch a line belongs to"),
                Column("place", "", "file:line, or the place of an instruction where no line is known"),
                Column("text", "", "the line, or its hottest instruction where the source was not imported"),
                Column("samples", "1", "samples of the program counter, all launches"),
                Column("share_frac", "0-1", "of all samples of the kernel"),
                Column("stall", "", "stall reason (sampled family) with most samples among its instructions"),
                Column("stall_frac", "0-1", "samples with that reason, over samples"),
                Column("inst_executed", "1", "warp instructions executed"),
                Column(
                    "sectors_over_ideal",
                    "1",
                    "theoretical L2 sectors of its global accesses over what coalesced ones need; 1 is best",
                ),
            ),
        ),
        Table(
            "traffic",
            "How many bytes did each layer need, predict and move?",
            (
                Column("range", "", "innermost range, not folded"),
                Column("op", "", "operation that the harness declares for this range"),
                Column("variant", "", "its implementation"),
                Column(
                    "minimum_bytes",
                    "byte",
                    "each input byte that is needed read once, each output byte written once",
                ),
                Column("predicted_unfused_bytes", "byte", "what one kernel per elementary step moves"),
                Column(
                    "predicted_fused_bytes",
                    "byte",
                    "what the fused kernel moves; 0 where a neighbour absorbs this range",
                ),
                Column(
                    "dram_read_bytes",
                    "byte",
                    "measured, and copies with the bytes nsys names; blank unless ncu has every kernel of the range",
                ),
                Column(
                    "dram_write_bytes",
                    "byte",
                    "measured; what still lies in L2 when a kernel ends is not in it",
                ),
                Column("l2_bytes", "byte", "measured between L2 and the SMs, kernels only"),
                Column(
                    "measured_over_minimum",
                    "1",
                    "(dram_read_bytes + dram_write_bytes) / minimum_bytes; below 1 what was written last still lay in "
                    "L2 when the kernel ended, or was read from there",
                ),
            ),
        ),
        Table(
            "gaps",
            "Is each step limited by launches, by memory or by arithmetic?",
            (
                Column("step", "", "instance of a range named step, decode or prefill; else the whole capture"),
                Column("wall_ns", "ns", "from the start of the step to its last GPU operation, nsys attached"),
                Column("bare_wall_ns", "ns", "the same step with no tool attached and the ranges off, median"),
                Column(
                    "bare_gpu_ns",
                    "ns",
                    "first kernel to last with no tool attached and all of them queued ahead: the wall time that is "
                    "left when no launch is waited for; median",
                ),
                Column("busy_ns", "ns", "union of the intervals in which a GPU operation of the step ran"),
                Column("launches", "1", "kernels of the step"),
                Column(
                    "largest_gaps_ns",
                    "ns",
                    "the three longest idle intervals, nsys attached, `;` between them",
                ),
                Column(
                    "verdict",
                    "",
                    "launch-bound, memory-bound or compute-bound; blank where the evidence is missing",
                ),
                Column("evidence", "", "the numbers that the verdict rests on"),
            ),
        ),
        Table(
            "fusion",
            "Which neighbouring kernels should be one, and what would that win?",
            (
                Column("pattern", "", "known name of the chain, else its operations"),
                Column("step", "", "range of the step (one token, one prefill) that the numbers of the row are for"),
                Column("range", "", "innermost ranges of the chain, folded"),
                Column(
                    "scope", "", "how these ranges lie to each other; epilogue: a matrix product takes the work over"
                ),
                Column("kernels", "", "kinds of the kernels and copies in launch order; matrix is the product itself"),
                Column("occurrences", "1", "times a step, repeated layers folded"),
                Column("launches", "1", "kernels and copies now"),
                Column("now_bytes", "byte", "bytes that they move now, by now_from"),
                Column(
                    "now_from",
                    "",
                    "DRAM (ncu): measured; L2 (ncu): measured between L2 and the SMs, where the chain is not far "
                    "larger than L2; shapes: modelled",
                ),
                Column("after_bytes", "byte", "inputs read once, results written once, from shapes"),
                Column("now_time_ns", "ns", "as nsys timed them in the running program"),
                Column(
                    "bound_time_ns",
                    "ns",
                    "bytes over the measured roof, and the shortest kernel: no fused kernel is faster, but for "
                    "what it leaves in L2",
                ),
                Column(
                    "gain_ns", "ns", "now_time_ns - bound_time_ns, and the idle time before each launch that is saved"
                ),
                Column("evidence", "", "what the row rests on, and why a gain is missing"),
            ),
        ),
        Table(
            "fusion_check",
            "Did the fused kernels that were built do what the plan had said of their chains?",
            (
                Column("op", "", "operation"),
                Column("variant", "", "implementation in one kernel, the fastest first"),
                Column("range", "", "where it ran, folded; numbers are of one launch, the mean of all there"),
                Column("shape", "", "its shape"),
                Column("dtype", "", "its data type"),
                Column("pattern", "", "the unfused chain, from whose capture alone the prediction comes"),
                Column("over_l2", "1", "predicted_bytes over the size of L2; judged from 4 on"),
                Column("predicted_bytes", "byte", "fusion.csv's after_bytes of the chain"),
                Column("measured_bytes", "byte", "DRAM bytes of the fused kernel, read and written"),
                Column("bytes_error_frac", "0-1", "measured_bytes / predicted_bytes - 1; goal 5 %"),
                Column("now_time_ns", "ns", "time of the unfused chain"),
                Column("predicted_time_ns", "ns", "fusion.csv's bound_time_ns of the chain"),
                Column("measured_time_ns", "ns", "time of the fused kernel, as nsys timed it"),
                Column("time_error_frac", "0-1", "measured_time_ns / predicted_time_ns - 1; goal 15 %"),
                Column(
                    "predicted_gain_ns", "ns", "fusion.csv's gain_ns of all such chains of a step, where it can be held"
                ),
                Column(
                    "measured_gain_ns",
                    "ns",
                    "GPU time of the step with the chains less that of the step with the kernels, both without a tool; "
                    "only where the steps differ in nothing else",
                ),
                Column("within", "", "whether both goals are met; blank where the working set is too small to judge"),
                Column("reason", "", "what the difference consists of"),
            ),
        ),
        Table(
            "coverage",
            "For which kernels of the timeline are there counters?",
            (
                Column("range", "", "innermost range, folded"),
                Column("seen", "1", "kernels in the timeline"),
                Column("requested", "1", "of these, kernels in the ranges that ncu was asked to capture"),
                Column("matched", "1", "of these, kernels matched to a row of ncu"),
                Column(
                    "extrapolated",
                    "1",
                    "kernels given a sibling layer's counters (only with --extrapolate-siblings)",
                ),
                Column("reason", "", "why kernels that were requested are not matched"),
            ),
        ),
    )
}


_PROFILE = Column("profile", "", "setting of the layer profiler and the type: with the KV cache, without, or a module")

_SWEEP = (
    Column("op", "", "operation"),
    Column("variant", "", "rung"),
    Column("dtype", "", "data type; blank where nothing was timed"),
    Column("shape", "", "name of the shape; blank where nothing was timed"),
    Column("combination", "", "the macros of its source, without what all their names begin with"),
    Column(
        "mark",
        "",
        "default, fastest (of the dtype and shape), recommended (for the source, by all that was timed)",
    ),
    Column(
        "not_measured",
        "",
        "ops, dtypes and shapes compiled with a recommended combination, and not timed with it",
    ),
    Column("keeps_default", "", "why the source is built with its defaults all the same"),
    Column(
        "slower_at",
        "",
        "of what is clearly faster than the default here: where it is clearly slower (by 1 % in the median, at all in "
        "95 % of the rounds), worst first",
    ),
    Column("verdict", "", "timed, or what kept it from being timed; built: without a GPU"),
    Column("reason", "", "why it was not timed"),
    Column("bench_time_p50_ns", "ns", "a launch with its data in DRAM, by CUDA events, median"),
    Column("bench_time_p5_ns", "ns", "the same, p5"),
    Column("bench_time_p95_ns", "ns", "the same, p95"),
    Column("versus_default", "1", "the default's time over this one's, paired by round, median"),
    Column("versus_default_p5", "1", "the same, p5"),
    Column("versus_default_p95", "1", "the same, p95"),
    Column("samples", "1", "rounds that the times and ratios rest on"),
    Column("call", "", "of `make sweep` that measured it: its number in the conditions, or not recorded"),
    Column("kernel", "", "its kernel that runs longest, of which the figures up to `tail_frac` are"),
    Column("registers", "1/thread", "registers a thread"),
    Column(
        "spill_bytes",
        "byte",
        "registers spilled to local memory, stores and loads, the source's worst kernel",
    ),
    Column("shared_bytes", "byte", "shared memory a block, static and dynamic"),
    Column("block_threads", "1", "threads a block"),
    Column("grid_blocks", "1", "blocks"),
    Column(
        "occupancy_theoretical_frac",
        "0-1",
        "resident warps that its resources allow, over the most; by ncu where it counted",
    ),
    Column("limiter", "", "what limits them: warps (full), blocks, registers or shared memory"),
    Column("waves", "1", "blocks over what all multiprocessors hold at once"),
    Column("tail_frac", "0-1", "share of the last wave that stays empty"),
    Column("multiprocessors", "1", "of the GPU"),
    Column("instructions", "inst", "warp instructions issued, by ncu, of all its kernels, as all that follows"),
    Column("warp_cycles", "cycle", "warp cycles per issued instruction: from one to the next"),
    Column("occupancy_achieved_frac", "0-1", "warps resident on an active multiprocessor"),
    Column("sm_active_frac", "0-1", "share of the cycles in which they are active: what the others leave"),
    Column("sm_clock_hz", "Hz", "clock while counting"),
    Column("dram_bytes", "byte", "DRAM bytes read and written"),
    Column("dram_byte_per_s", "byte/s", "the same over the time"),
    Column("l1_hit_frac", "0-1", "sectors found in L1, by ncu"),
    Column("l2_hit_frac", "0-1", "sectors found in L2, by ncu"),
    Column("sectors_per_request_load", "1", "sectors of 32 bytes a warp and global load, by ncu"),
    Column("stall", "", "the largest stall reason"),
    Column("stall_frac", "0-1", "its share of all stalls"),
    Column("stalls", "", "the cycles of `warp_cycles` in each, largest first, those of half a per cent"),
    Column("ncu_time_ns", "ns", "time of its kernels alone, by ncu"),
    Column("gpu", "", "the GPU"),
)
_AT_OTHER_SHAPES = {  # nothing of launches and counters: those are of where all combinations were tried
    "op", "variant", "dtype", "shape", "combination", "mark", "verdict", "reason", "bench_time_p50_ns",
    "versus_default", "versus_default_p5", "versus_default_p95", "samples", "call", "gpu",
}  # fmt: skip

# Tables of the layer profiler and of the baseline: a report has them only if the run has such a profile.
PROFILE_TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "layer_profile",
            "Where does a token's time go, level by level?",
            (
                _PROFILE,
                Column("level", "", "what is taken apart: model, block, attention, mlp, or the parts of a module"),
                Column("component", "", "the base, its components, then what lies between them: base less components"),
                Column("avg_ns", "ns", "mean of one instance, what its events add taken off"),
                Column("total_ns", "ns", "sum over all instances"),
                Column("count", "1", "instances"),
                Column("share_frac", "0-1", "total_ns over that of the base; components and the rest add up to 1"),
                Column(
                    "nsys_share_frac",
                    "0-1",
                    "the same by nsys in its captured run, first kernel's start to last one's end; blank without one",
                ),
                Column("base", "", "the component that is 100 %"),
            ),
        ),
        Table(
            "layer_tokens",
            "How long does a token take?",
            (
                _PROFILE,
                Column("clock", "", "CUDA events behind a held GPU, or the CPU's clock"),
                Column("prompt_tokens", "1", "tokens of the prompt"),
                Column("new_tokens", "1", "tokens of a run, one forward pass each"),
                Column("runs", "1", "profiled runs"),
                Column("forward_avg_ns", "ns", "mean forward pass with nothing attached: time of the GPU"),
                Column("blocks_avg_ns", "ns", "mean of all transformer blocks of a forward pass"),
                Column("token_ns", "ns", "wall time per token of a run that nothing holds back, median"),
                Column("tokens_per_s", "1/s", "tokens per second of such a run, median"),
                Column("tokens_per_s_p5", "1/s", "the same, 5 % are slower"),
                Column("tokens_per_s_p95", "1/s", "the same, 5 % are faster"),
                Column(
                    "own_ns", "ns", "what two events add to a reading, measured in this run and taken off every one"
                ),
            ),
        ),
        Table(
            "layer_instrument",
            "What does the layer profiler itself cost?",
            (
                _PROFILE,
                Column("attached", "", "nothing, the ranges alone, or the events of one level"),
                Column("events", "1", "events recorded in a forward pass"),
                Column("forward_ns", "ns", "one forward pass, median, rounds of all rows taken in turn"),
                Column("over_nothing_frac", "0-1", "forward_ns over that with nothing attached, less 1"),
                Column("launch_ns", "ns", "time the CPU takes to launch a forward pass, median"),
                Column("forwards", "1", "forward passes"),
            ),
        ),
        Table(
            "layer_agreement",
            "Do the events say what nsys says?",
            (
                _PROFILE,
                Column("level", "", "level whose events were on"),
                Column("component", "", "component"),
                Column("instances", "1", "instances of the one captured run, each timed by both"),
                Column("read_ns", "ns", "mean time between the component's two events, as read"),
                Column("own_ns", "ns", "what the two events add, measured in this run with kernels of known time"),
                Column("event_ns", "ns", "mean of read_ns - own_ns, not below 0"),
                Column("nsys_ns", "ns", "mean from the start of its first kernel to the end of its last; 0: no kernel"),
                Column("difference_ns", "ns", "event_ns - nsys_ns"),
                Column("difference_frac", "0-1", "difference_ns over nsys_ns"),
                Column("largest_difference_ns", "ns", "the difference of the instance where it is largest"),
                Column("within_frac", "", "yes: difference_ns is at most 2 % of nsys_ns"),
                Column("within_ns", "", "yes: difference_ns is at most 2 µs"),
            ),
        ),
        Table(
            "component_kernels",
            "Which kernels are in the heaviest components, run alone?",
            (
                _PROFILE,
                Column("component", "", "component, the heaviest first"),
                Column("kernel", "", "kernel (operator, on a CPU)"),
                Column("source", "", "which tool timed it"),
                Column("self_ns", "ns", "sum over all its launches"),
                Column("count", "1", "launches in all calls"),
                Column("avg_ns", "ns", "self_ns over count"),
            ),
        ),
        Table(
            "component_launches",
            "What does launching the heaviest components cost?",
            (
                _PROFILE,
                Column("rank", "1", "by time in the forward pass"),
                Column("component", "", "component"),
                Column("forward_share_frac", "0-1", "its share of the forward pass, all layers together"),
                Column("calls", "1", "times it was called alone"),
                Column("gpu_ns", "ns", "one call on the GPU, all calls queued"),
                Column("cpu_ns", "ns", "one call on the CPU, Python and PyTorch included, no profiler"),
                Column("api_calls", "1", "CUDA API calls of all calls (torch.profiler)"),
                Column("api_ns", "ns", "time in them for one call (torch.profiler)"),
                Column("nsys_launches", "1", "launches of all calls (nsys)"),
                Column("nsys_api_ns", "ns", "time in these launches for one call (nsys)"),
            ),
        ),
        Table(
            "baseline",
            "How fast is Hugging Face transformers here, and how far from what the memory allows?",
            (
                Column("setting", "", "attention of generate(), a CUDA graph of one step, or static cache + compile"),
                Column("dtype", "", "type of weights and arithmetic"),
                Column("tokens_per_s", "1/s", "new tokens over the wall time of a generation, median"),
                Column("tokens_per_s_p5", "1/s", "the same, 5 % are slower"),
                Column("tokens_per_s_p95", "1/s", "the same, 5 % are faster"),
                Column("token_p50_ns", "ns", "time from one token on the host to the next, median"),
                Column("token_p95_ns", "ns", "the same, 5 % take longer"),
                Column("kernels_per_token", "1", "kernels, those in CUDA graphs included (torch.profiler)"),
                Column("launches_per_token", "1", "launches of the CPU, a CUDA graph is one (torch.profiler)"),
                Column("busy_ns", "ns", "time per token in which a GPU operation ran (torch.profiler), as a union"),
                Column("busy_frac", "0-1", "busy_ns over the wall time per token without a profiler"),
                Column("floor_ns", "ns", "bytes that a token must read over the measured copy speed"),
                Column("floor_frac", "0-1", "floor_ns over the wall time per token"),
                Column("first_call_s", "s", "the first generation, compilation included"),
                Column("tokens_equal_first", "", "yes: the same tokens as the first setting of this type"),
                Column("reason", "", "why there are no numbers"),
            ),
        ),
        Table(
            "baseline_operators",
            "Which operators and kernels does a generation consist of?",
            (
                Column("setting", "", "setting of baseline.csv"),
                Column("dtype", "", "type of weights and arithmetic"),
                Column("name", "", "name as torch.profiler prints it"),
                Column("kind", "", "operator, kernel, or call (of CUDA and the rest)"),
                Column("self_cpu_ns", "ns", "CPU time without what it calls"),
                Column("cpu_ns", "ns", "CPU time with what it calls"),
                Column("self_cuda_ns", "ns", "time of its own kernels"),
                Column("cuda_ns", "ns", "time of all kernels below it"),
                Column("calls", "1", "calls"),
                Column("calls_per_token", "1", "calls over the tokens of the profiled generation"),
                Column("share_frac", "0-1", "self_cuda_ns over that of its kind (without a GPU: of self_cpu_ns)"),
            ),
        ),
        Table(
            "bottlenecks",
            "What limits a token of the baseline?",
            (
                Column("setting", "", "setting of baseline.csv"),
                Column("dtype", "", "type of weights and arithmetic"),
                Column("question", "", "what was asked"),
                Column("value", "", "the number, in the unit beside it"),
                Column("unit", "", "unit of the value"),
                Column("answer", "", "what the number says, written by rule"),
            ),
        ),
        Table(
            "sweep",
            "Which compile-time choices of each kernel are the fastest, and what tells them apart?",
            _SWEEP,
        ),
        Table(
            "sweep_best",
            "What did the sweep of each kernel find, and why?",
            (
                Column("op", "", "operation"),
                Column("variant", "", "rung"),
                Column("dtype", "", "data type"),
                Column("shape", "", "name of the shape"),
                Column("combinations", "1", "that were tried"),
                Column("timed", "1", "of them, right and timed"),
                Column("samples", "1", "rounds that each of the times rests on, the fewest where they differ"),
                Column("calls", "", "of `make sweep` that measured them: numbers in the conditions, or not recorded"),
                Column("default", "", "the source as it stands"),
                Column("fastest", "", "least median time; clear only if faster than the default in 95 % of the rounds"),
                Column("versus_default", "1", "the default's time over the fastest one's, paired by round, median"),
                Column("clear", "", "yes, no, or blank where the default is the fastest"),
                Column(
                    "slowest",
                    "",
                    "most median time; within 1 % of it one with counters, or the most like the default",
                ),
                Column("slowest_versus_default", "1", "the default's time over the slowest one's, median"),
                Column("recommended", "", "for the source: by all dtypes, shapes and ops that were timed of it"),
                Column(
                    "evidence",
                    "",
                    "what sets the fastest and the slowest apart, and why another is recommended; cycles are "
                    "instructions times warp cycles per issued instruction, over occupancy and share of active cycles",
                ),
            ),
        ),
        Table(
            "sweep_shapes",
            "What do the fastest combinations do at the other shapes that their source is compiled for?",
            tuple(column for column in _SWEEP if column.name in _AT_OTHER_SHAPES),
        ),
        Table(
            "published",
            "How does this machine compare with what two student projects published?",
            (
                Column("figure", "", "what is compared"),
                Column("unit", "", "unit of both numbers"),
                Column("ours", "", "this run"),
                Column(
                    "our_clock", "", "what this run's figure was taken by; theirs may be another where it is not said"
                ),
                Column("theirs", "", "as published"),
                Column("their_machine", "", "GPU of the published figure"),
                Column("their_setting", "", "how it was taken"),
            ),
        ),
    )
}


_POINT = (
    Column("op", "", "operation, as kernels.registry names it"),
    Column("variant", "", "rung: one way to compute it"),
    Column("dtype", "", "fp32 or bf16"),
    Column("shape_name", "", "registered name of the shape"),
)

BASELINES = ("triton", "compile", "torch")  # that a benchmark pairs by round
_PAIRED = tuple(
    Column(f"versus_{baseline}_{at}", "1", f"time of `{baseline}` over this one's, paired by round: {at}")
    for baseline in BASELINES
    for at in ("p5", "p50", "p95")
)

# The kernel ladder: of `python -m studies.ladder.build`, not of every report.
LADDER_TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "ladder",
            "What does each rung of each ladder take and move, what does it wait for, and did it do what it promised?",
            (
                *_POINT,
                Column("folder", "", "where the op lives under kernels/"),
                Column("kind", "", "torch, compile, cuda or triton"),
                Column("rung", "1", "place in the op's declaration, from 0"),
                Column("best", "", "whether the op runs it on this dtype where no variant is named"),
                Column("library", "", "fastest variant of the library at this dtype and shape, not in lower precision"),
                Column("precision", "", "precision of its arithmetic where it is not that of its dtype"),
                Column("macros", "", "what a sweep found faster than its defaults, over dtypes and shapes together"),
                Column("refuses", "", "registered shapes that it does not take, and why"),
                Column("shape", "", "sizes, in the order of `axes`"),
                Column("axes", "", "names of the axes, with commas between"),
                Column("at_bench_shape", "", "whether the row belongs to the op's ladder; else a claim needs it"),
                Column("hypothesis", "", "what the variant declares"),
                Column("bench_time_p5_ns", "ns", "5th percentile, by CUDA events, data in DRAM (convention cold)"),
                Column("bench_time_p50_ns", "ns", "median"),
                Column("bench_time_p95_ns", "ns", "95th percentile"),
                Column("minimum_bytes", "byte", "what is needed of the inputs read once, outputs written once"),
                Column("predicted_bytes", "byte", "what this variant should move"),
                Column("flops", "FLOP", "operations of the op"),
                Column("compute_bound", "", "whether the op's floor counts the operations"),
                Column("reads_only", "", "whether its floor is the read bandwidth"),
                Column("achieved_byte_per_s", "byte/s", "minimum_bytes over the median time"),
                Column("achieved_flop_per_s", "FLOP/s", "flops over the median time, of compute-bound ops"),
                Column("floor_time_ns", "ns", "the least time by the measured roofs"),
                Column("floor_frac", "0-1", "floor_time_ns over the median time: of the measured roof"),
                Column("rung_below", "", "nearest earlier CUDA rung that takes this dtype and shape"),
                Column("versus_below", "1", "times faster than that rung, of medians"),
                Column("versus_library_p5", "1", "times faster than the library, paired by round, 5th percentile"),
                Column("versus_library_p50", "1", "median"),
                Column("versus_library_p95", "1", "95th percentile"),
                *_PAIRED,
                Column("launches", "1", "kernels in the range"),
                Column("kernel", "", "name of the longest one"),
                Column("ncu_time_ns", "ns", "sum over the launches, replayed alone from cold caches"),
                Column("dram_read_bytes", "byte", "bytes that came from DRAM, sum"),
                Column("dram_write_bytes", "byte", "bytes that went to DRAM before the kernels ended, sum"),
                Column("measured_bytes", "byte", "the two together"),
                Column("measured_over_predicted", "1", "measured_bytes over predicted_bytes"),
                Column("measured_over_minimum", "1", "measured_bytes over minimum_bytes"),
                Column("compute_throughput_frac", "0-1", "busiest pipe of the SM, of its peak, weighted by time"),
                Column("memory_throughput_frac", "0-1", "busiest part of the way to memory, weighted by time"),
                Column("dram_throughput_frac", "0-1", "DRAM, of ncu's own peak, weighted by time"),
                Column("l1_hit_frac", "0-1", "sectors found in L1, weighted by time"),
                # hits and sectors are counted in different passes of ncu
                Column("l2_hit_frac", "0-1", "sectors found in L2, weighted by time; may pass 1 by some thousandths"),
                Column("inst_executed", "inst", "warp instructions, sum"),
                Column("global_load_inst", "inst", "of these, global loads"),
                Column("occupancy_theoretical_frac", "0-1", "warps that fit, of the most, weighted by time"),
                Column("occupancy_achieved_frac", "0-1", "warps that were there on active SMs, weighted by time"),
                Column("occupancy_limiter", "", "what lets fewest blocks onto an SM"),
                Column("grid", "", "grid of the longest kernel, XxYxZ blocks"),
                Column("block", "", "its block, XxYxZ threads"),
                Column("grid_size", "block", "blocks, sum over the launches"),
                Column("registers", "1/thread", "of the longest kernel"),
                Column("shared_bytes_per_block", "byte/block", "of the longest kernel"),
                Column("waves", "1", "of the longest kernel: its grid over what the GPU holds at once"),
                Column("branch_efficiency_frac", "0-1", "branches whose threads go one way; blank without branches"),
                Column("sectors_per_request_load", "sector/request", "of global loads: 4, 8, 16 are best by width"),
                Column("sectors_per_request_store", "sector/request", "of global stores"),
                Column(
                    "uncoalesced_frac",
                    "0-1",
                    "of the sectors that global accesses ask for, those that coalesced ones would not",
                ),
                Column("local_bytes", "byte", "local-memory traffic through L1, sum"),
                Column("fma_active_frac", "0-1", "cycles in which the FMA pipe worked"),
                Column("tensor_active_frac", "0-1", "cycles in which the tensor pipe worked"),
                Column("warp_cycles_per_issue", "cycle", "cycles between two instructions of a warp"),
                Column("top_stall", "", "largest reason to wait: no warp that is ready (not_selected) waits"),
                Column("top_stall_frac", "0-1", "its share of the cycles of all warps that do not issue"),
                Column("hot_line", "", "source line with most samples, file:line"),
                Column("hot_line_frac", "0-1", "its share of the samples"),
                Column("hot_line_stall", "", "what its samples wait for most"),
                Column("hot_line_text", "", "its text"),
                Column(
                    "verdict",
                    "",
                    "over what the rung states, or else the rule about bytes: refuted if a part is",
                ),
                Column("verdict_by", "", "the metrics that it rests on, in words"),
                Column("verdict_why", "", "what was measured of it, refuted parts first; then what it does not state"),
                Column("fingerprint", "", "of the sources as they are now"),
                Column(
                    "state",
                    "",
                    "current; stale: see there; missing: no counters; failed: its check failed",
                ),
                Column(
                    "stale",
                    "",
                    "what of it an older build gave, times or counters or both: source or macros changed",
                ),
                Column("run", "", "run of the counters"),
                Column("bench_run", "", "benchmark or run of the times"),
            ),
        ),
        Table(
            "ladder_stalls",
            "What do the warps of each rung wait for?",
            (
                *_POINT,
                Column("reason", "", "stall reason, as ncu names it"),
                Column("share_frac", "0-1", "share of all stall cycles, `selected` left out"),
            ),
        ),
        Table(
            "hypotheses",
            "Which hypotheses of the rungs held?",
            (
                *_POINT,
                Column("at", "", "name of the shape that it is about"),
                Column("metric", "", "column of ladder.csv, or stall_<reason>_frac"),
                Column("versus", "", "variant (or floor) whose value it is divided by, if any"),
                Column("stated", "", "whether the rung states it; else it is the rule about bytes that holds for all"),
                Column("low", "", "least that confirms, blank if open"),
                Column("high", "", "most that confirms, blank if open"),
                Column("equals", "", "text that confirms"),
                Column("found", "", "what was found, in the unit of the metric or as a ratio"),
                Column("what", "", "metric and versus in words"),
                Column("found_text", "", "what was found, in words, with the bounds"),
                Column(
                    "verdict",
                    "",
                    "confirmed, refuted or not measured (also: times of two runs, near a bound)",
                ),
            ),
        ),
        Table(
            "goals",
            "What were the fastest rungs to reach, and did they?",
            (
                Column("goal", "", "its place in kernels/goals.toml"),
                Column("what", "", "the goal in words"),
                Column("op", "", "operation"),
                Column("variant", "", "its fastest rung"),
                Column("dtype", "", "fp32 or bf16"),
                Column("shape_name", "", "name of the shape"),
                Column("beside", "", "what it is held against"),
                Column("least", "", "how many times as fast as that it is to be"),
                Column("found", "", "how many times as fast it is: median of paired rounds, else of the medians"),
                Column("found_p5", "", "5th percentile of the rounds, else the least that the ends of both times give"),
                Column("found_p95", "", "95th percentile, else the most"),
                Column("met", "", "whether `least` is reached by `found`"),
                Column("within_spread", "", "whether `least` lies between found_p5 and found_p95"),
                Column("two_runs", "", "whether the two times are of two runs, not of one"),
            ),
        ),
        Table(
            "ladder_times",
            "How long does every variant take at every shape that was timed, its source being as it is now?",
            (
                *_POINT,
                Column("shape", "", "sizes, in the order of the op's axes"),
                Column("bench_run", "", "folder that timed it: the benchmark, else the newest run of the ladder"),
                Column("bench_time_p5_ns", "ns", "5th percentile, by CUDA events, data in DRAM (convention cold)"),
                Column("bench_time_p50_ns", "ns", "median"),
                Column("bench_time_p95_ns", "ns", "95th percentile"),
                Column("floor_time_ns", "ns", "the least time by the measured roofs"),
                Column("floor_frac", "0-1", "floor_time_ns over the median time: of the measured roof"),
                Column("achieved_byte_per_s", "byte/s", "minimum_bytes over the median time"),
                Column("achieved_flop_per_s", "FLOP/s", "flops over the median time, of compute-bound ops"),
                *_PAIRED,
            ),
        ),
        Table(
            "not_timed",
            "Which registered shapes has nothing been timed at, the sources being as they are now?",
            (
                Column("op", "", "operation"),
                Column("dtype", "", "fp32 or bf16"),
                Column("shape_name", "", "name of the shape"),
            ),
        ),
        Table(
            "claims",
            "What do others claim of such kernels, and what was found?",
            (
                Column("claim", "", "name in kernels/claims.toml"),
                Column("source", "", "whose claim"),
                Column("says", "", "the claim"),
                Column("op", "", "operation"),
                Column("dtype", "", "fp32 or bf16"),
                Column("before", "", "variant and shape that it compares with, blank if none"),
                Column("after", "", "variant and shape that it is about"),
                Column("what", "", "what of the claim is measured"),
                Column("metric", "", "column of ladder.csv"),
                Column("claimed", "", "what was claimed of it"),
                Column("before_value", "", "found, in the unit of the metric"),
                Column("after_value", "", "found, in the unit of the metric"),
                Column("found", "", "both as text"),
                Column("verdict", "", "confirmed, refuted or not measured"),
                Column("why", "", "why, from the counters"),
                Column("stale", "", "variants of which a number of the row is of an older build, with commas between"),
            ),
        ),
        Table(
            "ladder_runs",
            "When and on what was the ladder measured?",
            (
                Column("run", "", "folder of the run"),
                Column("gpu", "", "its name"),
                Column("driver", "", "version"),
                Column("cuda", "", "version that torch was built for"),
                Column("torch", "", "version"),
                Column("triton", "", "version"),
                Column("ncu", "", "version"),
                Column("sm_clock_mhz", "MHz", "median while times were taken; blank where none were, only counters"),
                Column("throttle_reasons", "", "why clocks were held back, if they were"),
                Column("bf16_roof_flop_per_s", "FLOP/s", "what cuBLAS reached in bf16, if it was measured"),
                Column("points", "1", "points that passed their check"),
                Column("counted", "1", "points of ladder.csv whose counters are of this run"),
                Column("capture_s", "s", "how long ncu took"),
                Column("commit", "", "of the code"),
            ),
        ),
    )
}


def document_columns() -> str:
    """Return the Markdown text that analysis/README.md holds between its markers."""
    parts = []
    for table in (*TABLES.values(), *PROFILE_TABLES.values(), *LADDER_TABLES.values()):
        lines = [
            f"### `{table.name}.csv`",
            "",
            table.question,
            "",
            "| column | unit | meaning |",
            "|---|---|---|",
        ]
        lines += [f"| `{c.name}` | {c.unit} | {c.description} |" for c in (*table.columns, TIER)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(document_columns())
