"""Hold the input of the rules: the counters of all kernels as arrays, and the least time that each GPU unit needs.

A *floor* is the time that one unit would need for the kernel's work, at the rate that the unit can sustain, if nothing
else took time. No kernel is shorter than its longest floor. A cause has to explain the time above it.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.diagnosis.limits import Limits
from analysis.formats import symbols

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_TENSOR = re.compile("flops_tensor_(.+)")
WARP = 32
PLACED = ("occupancy_limit_shared_mem", "occupancy_theoretical_frac", "waves")  # ncu may not know these
SECTOR = 32
SIXTEEN_BITS = r"\b(?:__nv_bfloat16|__half|half|BFloat16|Half|bfloat16_t|half_t)\b"  # by CUDA, ATen and CUTLASS
# A resident warp waits in every state except these two, in which it could issue.
NOT_WAITING = ("selected", "not_selected")
MEMORY, COMPUTE = ("dram", "l2", "l1", "requests"), ("issue", "fp32", "fp64", "tensor", "xu")
ROOFS = (
    "dram",
    "l2",
    "fp32",
    "fp64",
    "tensor",
    "xu",
)  # of useful work; a program can avoid the other floors


@lru_cache(maxsize=1 << 16)
def count(shape: str) -> float:
    """Return the blocks of a grid, or the threads of a block, from `XxYxZ`; NaN if the text is not a shape."""
    parts = shape.split("x")
    return float(math.prod(map(int, parts))) if all(map(str.isdigit, parts)) else math.nan


def product(shapes: pd.Series) -> Floats:
    """Return `count` of each shape."""
    return shapes.map({shape: count(str(shape)) for shape in shapes.unique()}).to_numpy(np.float64)


class Evidence:
    """The mean launch of each kernel and range. Shape: every property is an array with one value per row of `rows`.

    `rows` has the columns of the metric catalogue and `grid`, `block` as `XxYxZ`. A metric that was not collected is
    NaN. A comparison with NaN is false, so no rule fires on an unknown value.
    """

    def __init__(self, rows: pd.DataFrame, limits: Limits) -> None:
        self.rows, self.limits = rows, limits
        self.placed = self._place()

    def _place(self) -> Bools:
        """Compute PLACED for the kernels that have no limit by shared memory, and mark them."""
        others = np.min(np.stack([self[f"occupancy_limit_{one}"] for one in ("registers", "warps", "blocks")]), axis=0)
        fit = np.floor(self.limits.shared_bytes / self["shared_bytes_per_block"])
        most = np.minimum(fit, others)
        placed = np.isnan(self["occupancy_limit_shared_mem"]) & (most >= 1)
        if placed.any():
            warps = np.minimum(most * np.ceil(self.threads / WARP), self.limits.max_warps)
            found = (fit, warps / self.limits.max_warps, self.blocks / most / self.limits.sm_count)
            columns = {name: np.where(placed, new, self[name]) for name, new in zip(PLACED, found, strict=True)}
            self.rows = self.rows.assign(**columns)
        return np.asarray(placed)

    def __getitem__(self, name: str) -> Floats:
        """Return a column of the catalogue, NaN if it was not collected."""
        if name not in self.rows:
            return np.full(len(self.rows), np.nan)
        return pd.to_numeric(self.rows[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)

    def filled(self, name: str) -> Floats:
        """Return a column of the catalogue, 0 if it was not collected."""
        return np.nan_to_num(self[name])

    # ------------------------------------------------------------------------------------------------ launch and time

    @cached_property
    def time(self) -> Floats:
        """Return the duration of a launch, ns."""
        return self["duration_ns"]

    @cached_property
    def clock(self) -> Floats:
        """Clock of the SMs in Hz; the GPU's usual clock if the capture has none."""
        return np.where(np.isnan(self["sm_clock_hz"]), self.limits.sm_clock_hz, self["sm_clock_hz"])

    @cached_property
    def cycles(self) -> Floats:
        """Return cycles of an SM."""
        return self.time * self.clock * 1e-9

    @cached_property
    def blocks(self) -> Floats:
        return product(self.rows["grid"])

    @cached_property
    def threads(self) -> Floats:
        """Return threads of a block."""
        return product(self.rows["block"])

    @cached_property
    def shared(self) -> Floats:
        """Return bytes of shared memory per block that the program requested."""
        return np.asarray(self["shared_bytes_per_block"] - self.limits.reserved_shared_bytes)

    @cached_property
    def warps(self) -> Floats:
        """Return resident warps on an active SM, mean."""
        return np.asarray(self["occupancy_achieved_frac"] * self.limits.max_warps)

    @cached_property
    def filling(self) -> Floats:
        """Return resident warps over the number that the grid and the resources allow."""
        per_wave = self.blocks / self["waves"] / self.limits.sm_count  # blocks that fit on an SM
        most = np.clip(self["waves"], 1 / np.maximum(per_wave, 1), 1)
        return np.asarray(self["occupancy_achieved_frac"] / (self["occupancy_theoretical_frac"] * most))

    @cached_property
    def closed(self) -> Bools:
        """Return whether the kernel's name is one of a library or a compiler, whose registers nobody else chooses."""
        return self._named(symbols.is_closed)

    @cached_property
    def for_odd_operands(self) -> Bools:
        """Return whether the kernel's name is that of a library's variant for operands without alignment."""
        return self._named(lambda name: symbols.odd_operands(name) is not None)

    def _named(self, test: Callable[[str], bool]) -> Bools:
        names = self.rows["kernel"] if "kernel" in self.rows else [""] * len(self.rows)
        return np.array([test(str(name)) for name in names], bool)

    @cached_property
    def of_16_bits(self) -> Bools:
        """Return whether the kernel's name has a 16-bit floating-point type, as argument of a template or function."""
        if "kernel" not in self.rows:
            return np.zeros(len(self.rows), bool)
        names = self.rows["kernel"].astype("string").fillna("")
        return np.asarray(names.str.contains(SIXTEEN_BITS), bool)

    # ------------------------------------------------------------------------------------------------ where warps wait

    @cached_property
    def warp_time(self) -> Floats:
        """Return cycles between two instructions of a warp: the sum over all its states."""
        names = [name for name in self.rows if str(name).startswith("stall_") and name != "stall_selected"]
        if not names:
            return np.full(len(self.rows), np.nan)
        return np.asarray(self.rows[names].sum(axis=1, min_count=1).to_numpy(np.float64) + 1.0)

    def waits(self, *reasons: str) -> Floats:
        """Return the share of the warps' time in these states."""
        return np.asarray(sum(self[f"stall_{reason}"] for reason in reasons) / self.warp_time)

    # ---------------------------------------------------------------------------------------------------------- memory

    @cached_property
    def sectors(self) -> Floats:
        """Return sectors per global load request."""
        return self["sectors_per_request_load"]

    @cached_property
    def loaded(self) -> Floats:
        """Return bytes of the sectors that global loads touch; a sector counts each time."""
        return self["global_load_bytes"]

    @cached_property
    def stored(self) -> Floats:
        """Return bytes of the sectors that global stores touch."""
        return self["global_store_bytes"]

    @cached_property
    def written(self) -> Floats:
        """Return bytes that the kernel writes to DRAM, including bytes still in L2 at its end."""
        held = np.clip(self["l2_write_bytes"] - self["dram_write_bytes"], 0, self.limits.dirty_bytes)
        return np.asarray(self["dram_write_bytes"] + np.nan_to_num(held))

    def dram_ns(self, read: Any, write: Any) -> Floats:
        """Return time of DRAM for the read and written bytes: a copy is slower than reads alone."""
        reads, copy = self.limits.dram_read_bytes_per_s, self.limits.dram_copy_bytes_per_s
        write_s = max(2 / copy - 1 / reads, 1 / reads)
        return np.asarray((read / reads + write * write_s) * 1e9)

    @cached_property
    def wait_per_load(self) -> Floats:
        """Return cycles that a warp waits for data, per load that it issued: the latency, if no two loads overlap."""
        requests = self["global_load_requests"] / self.limits.sm_count
        return np.asarray(self.cycles * self.warps * self.waits("long_scoreboard") / np.maximum(requests, 1))

    # ---------------------------------------------------------------------------------------------------------- floors

    @cached_property
    def lanes_ns(self) -> Floats:
        """ns per operation of one lane of one SM, over the number of SMs: divided by lanes, it gives the time."""
        return np.asarray(1e9 / (self.clock * self.limits.sm_count))

    @cached_property
    def tensor_flops(self) -> Floats:
        return self._tensor_work({})

    def _tensor_work(self, rates: Mapping[str, float]) -> Floats:
        """Return the FLOPs of tensor cores, those of each format over its rate."""
        formats = {name: found[1] for name in self.rows if (found := _TENSOR.match(str(name)))}
        by_format = [self.rows[name] / rates.get(form, 1.0) for name, form in formats.items()]
        if not by_format:
            return np.full(len(self.rows), np.nan)
        return pd.concat(by_format, axis=1).sum(axis=1, min_count=1).to_numpy(np.float64)

    @cached_property
    def floors(self) -> dict[str, Floats]:
        """Return the least time in ns of each unit, NaN if its work was not counted."""
        limits, lane = self.limits, self.lanes_ns
        return {
            "dram": self.dram_ns(self["dram_read_bytes"], self.written),
            "l2": np.asarray((self["l2_read_bytes"] + self["l2_write_bytes"]) * lane / limits.l2_bytes),
            "l1": np.asarray(self["l1_bytes"] * lane / limits.l1_bytes),
            "requests": np.asarray(self["global_load_requests"] * lane / limits.lsu_requests),
            "issue": np.asarray(self["inst_issued"] * lane / limits.schedulers),
            "fp32": np.asarray(self["flops_fp32"] / 2 * lane / limits.fp32_lanes),
            "fp64": np.asarray(self["flops_fp64"] / 2 * lane / limits.fp64_lanes),
            "tensor": np.asarray(self._tensor_work(limits.tensor_rates) / limits.tensor_flop_per_s * 1e9),
            "xu": np.where(
                np.isnan(self["xu_active_frac"]), self._queued_functions, self["xu_active_frac"] * self.time
            ),
            "blocks": np.asarray(self.blocks * limits.block_start_cycles / self.clock * 1e9),
        }

    @cached_property
    def queue(self) -> Floats:
        """Share of the warps' time before or after the queue of shared memory, special functions and conversions."""
        return self.waits("mio_throttle", "short_scoreboard")

    @cached_property
    def _queued_functions(self) -> Floats:
        """Return the time of uncounted special functions in ns: all the time, if nothing else explains the queue.

        An eighth of the issue slots fills the unit. Other explanations of the queue are fewer instructions, shared
        memory (a word for each thread, or warps that wait for its results), FP64 (conversions run there, too) and many
        loads. Warps that wait for data cannot queue.
        """
        slots = self["inst_issued"] * self.lanes_ns / self.limits.schedulers / self.time
        results = self.waits("short_scoreboard") > self.waits("mio_throttle") / 8  # of shared memory
        others = (self.shared > np.where(results, 0, 4 * self.threads)) | (self.filled("flops_fp64") > 0)
        others |= slots < 1 / 8
        others |= self["global_load_requests"] * self.lanes_ns > self.time / 4
        full = (self.queue > 0.4) | (self.waits("mio_throttle") > 0.35 * (1 - self.waits("long_scoreboard")))
        return np.where(full & ~others, self.time, 0.0)

    @cached_property
    def functions(self) -> Floats:
        """Return the number of special functions (per lane) that fit into the time of their unit."""
        return np.asarray(self.floors["xu"] * self.limits.xu_lanes / self.lanes_ns)

    @cached_property
    def busy(self) -> dict[str, Floats]:
        """Return each floor over the time minus that of an empty kernel.

        At most half of the kernel's time is subtracted.
        """
        left = self.time - np.minimum(self.limits.empty_kernel_ns, self.time / 2)
        return {name: np.nan_to_num(floor / left) for name, floor in self.floors.items()}

    @cached_property
    def arithmetic(self) -> Floats:
        """Return the time in ns that the pipes for integers and multiply-adds work; 0 if it was not counted.

        ncu counts their shares of the time in which an SM has a block. If that was not counted, an SM without a block
        is known only of a grid that is smaller than the GPU.
        """
        shares = np.fmax(self["alu_active_frac"], self["fma_active_frac"])
        active = np.fmin(np.fmin(self["sm_active_frac"], self.blocks / self.limits.sm_count), 1)
        return np.nan_to_num(shares * active) * self.time

    @cached_property
    def dependent(self) -> Floats:
        """Return the time in ns that each warp takes to issue its instructions one after another.

        An instruction takes its own issue cycle and its fixed latency, whatever the other warps do.
        """
        return np.nan_to_num((self.waits("wait") + 1 / self.warp_time) * self.time)

    def after(self, **changed: Any) -> Floats:
        """Return the least time of a launch in ns with other values of the named floors, which the cure lowers.

        Memory and arithmetic overlap, though not fully, so they combine as the root of the sum of their squares. No
        clean or fixed kernel of the development half beats this by more than 7 %. A library that keeps tiles in shared
        memory overlaps them. A grid ends only after its last block has started. A kernel that reads DRAM takes at least
        one latency of DRAM. If the cure removes instructions (`issue`), those that remain use the arithmetic pipes as
        before. Each still takes its own latency, unless the cure replaces slow instructions by fast ones (`dependent` =
        0).
        """
        own = np.nan_to_num(np.asarray(changed.pop("dependent", self.dependent), float))
        floors = {name: np.nan_to_num(floor) for name, floor in self.floors.items()}
        for name, value in changed.items():  # an unknown floor is no bound
            floors[name] = np.broadcast_to(np.nan_to_num(np.asarray(value, float)), self.time.shape)
        kept = np.clip(floors["issue"] / np.maximum(np.nan_to_num(self.floors["issue"]), 1e-9), 0, 1)
        floors["pipe"] = self.arithmetic * kept
        if "issue" in changed:
            floors["issue"] = np.hypot(floors["issue"], own * kept)
        sides = [np.max(np.stack([floors[name] for name in names]), axis=0) for names in (MEMORY, (*COMPUTE, "pipe"))]
        tiled = self.closed & (self.shared >= 4 * self.threads)
        longest = np.maximum(np.where(tiled, np.maximum(*sides), np.hypot(*sides)), floors["blocks"])
        latency = np.nan_to_num(self.limits.dram_latency_cycles / self.clock * 1e9) * (self["dram_read_bytes"] > 0)
        return np.asarray(np.minimum(longest + self.limits.empty_kernel_ns + latency, self.time))

    def without(self, share: Any, **changed: Any) -> Floats:
        """Return the time of a launch in ns without the share `share` of it, but at least the time of its floors."""
        return np.asarray(
            np.minimum(np.maximum(self.time * (1 - np.clip(share, 0, 1)), self.after(**changed)), self.time)
        )

    def spread(self, share: Any, **changed: Any) -> Floats:
        """Return the time in ns without the share `share`, if the same work then keeps its units busier.

        A cure that spreads work over more warps or over idle time removes no work. Requests queue longer at busier
        units, so what is left combines with the floors as memory and arithmetic do in `after`.
        """
        left = self.time * (1 - np.clip(share, 0, 1))
        return np.asarray(np.minimum(np.hypot(left, self.after(**changed)), self.time))

    @cached_property
    def roof(self) -> Floats:
        """Return the share of the nearest roof."""
        return np.max(np.stack([self.busy[name] for name in ROOFS]), axis=0)

    @cached_property
    def nearest(self) -> npt.NDArray[np.str_]:
        """Return the name of the nearest roof."""
        return np.asarray(ROOFS)[np.argmax(np.stack([self.busy[name] for name in ROOFS]), axis=0)]


class Roofs(Evidence):
    """Evidence from which a rule computes a time that no cure of its cause can go below.

    Of its model, only the roofs whose work the cure does not reduce remain, and an empty kernel.
    """

    def __init__(self, evidence: Evidence) -> None:
        vars(self).update(vars(evidence))  # with all that it has computed: no property depends on the model

    def after(self, **changed: Any) -> Floats:
        """Return the longest of the roofs that a cure leaves, and the time of an empty kernel, ns."""
        floors = {name: np.nan_to_num(self.floors[name]) for name in ROOFS}
        kept = [np.where(np.nan_to_num(changed.get(name, floor)) < floor, 0, floor) for name, floor in floors.items()]
        return np.asarray(np.minimum(np.max(np.stack(kept), axis=0) + self.limits.empty_kernel_ns, self.time))

    def without(self, share: Any, **changed: Any) -> Floats:
        """Return `after`: how much a wait costs is no limit of the hardware."""
        return self.after(**changed)

    spread = without
