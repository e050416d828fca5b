"""One declaration for each specimen: what it computes, which defect its slow version has, what its fixed twin does.

The kernels stand in `<half>/<source>.cu` as `<kernel>_slow` and `<kernel>_fixed`, clean ones as `<kernel>`; sizes and
blocks stand there too. Each defect has the pair of the holdout here. The captures of two earlier sets score the rules,
too; commit 795c8cc0 has their sources, static.csv what their machine code shows. `evidence` is what the machine code
must show of the defect, as far as that can be told without running it: `slow LDL >= 1` counts instructions by their
opcode, or bytes and registers by the columns of static.csv.

    python -m kernels.specimens.registry        lists all
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from analysis.formats.report import kind_of, kinds

FOLDER = Path(__file__).resolve().parent
# The causes of lost time outside kernels that have a pair of programs, by the names that their captures have.
TIMELINE = (
    "launch_bound", "item_in_loop", "synchronise_each_op", "pageable_copies", "small_copies", "copies_not_overlapped",
    "allocation_in_loop", "default_stream", "data_loader", "repeated_casts", "graph_each_step", "compile_in_window",
    "rank_waits",
)  # fmt: skip
HALVES = ("development", "validation")
DEVELOPMENT, VALIDATION = HALVES
HOLDOUT = "holdout"  # written on 2026-11-23 without a look at the rules; to be captured, and scored once without tuning
SETS = (*HALVES, HOLDOUT)
BUILT = (HOLDOUT,)  # the sets whose sources are in the tree


@dataclass(frozen=True)
class Specimen:
    """One kernel as the driver runs it; `name` is its NVTX range behind `specimens/`."""

    name: str
    half: str  # one of SETS
    defect: str  # what is to be diagnosed of it; of a fixed twin what has been cured
    version: str  # slow, fixed or clean
    kernel: str  # the device symbol; "" of a library's


@dataclass(frozen=True)
class Pair:
    """A slow kernel and its fixed twin."""

    defect: str
    half: str
    kernel: str
    source: str
    dtype: str
    computes: str
    slow: str
    fixed: str
    evidence: tuple[str, ...] = ()

    def specimens(self) -> list[Specimen]:
        """Return the slow one, then the fixed one."""
        return [
            Specimen(f"{self.half}/{self.defect}/{one}", self.half, self.defect, one, f"{self.kernel}_{one}")
            for one in ("slow", "fixed")
        ]


@dataclass(frozen=True)
class Clean:
    """A kernel with nothing to win; `answer` is what is to be said of it."""

    name: str
    half: str
    kernel: str
    dtype: str
    computes: str
    answer: str = "none_at_roof"

    def specimens(self) -> list[Specimen]:
        """Return the one that it is."""
        name = f"{self.half}/clean/{self.name}"
        return [Specimen(name, self.half, self.answer, "clean", self.kernel)]


@cache
def vocabulary() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return the causes that have specimens: `kernel`, `timeline`, `clean`, each with its `what` and `cure`."""
    said = kinds()
    parts = {part: [name for name in said if said[name]["part"] == part] for part in ("kernel", "clean")}
    parts["clean"].remove("nothing")  # a verdict on steps, not on kernels
    parts["timeline"] = list(TIMELINE)
    return {part: {name: said[kind_of(name)] for name in names} for part, names in parts.items()}


def _pairs(half: str, *rows: tuple[Any, ...]) -> Iterator[Pair]:
    for defect, kernel, source, dtype, computes, slow, fixed, *evidence in rows:
        yield Pair(defect, half, kernel, source, dtype, computes, slow, fixed, tuple(evidence))


PAIRS = (
    *_pairs(
        HOLDOUT,
        ("uncoalesced_loads", "averages", "memory", "int16", "exponential averages of series",
         "each thread reads its series", "a block reads tiles", "slow LDS <= 0", "fixed LDS >= 1"),
        ("uncoalesced_stores", "rotations", "memory", "float64", "rotation matrices of quaternions",
         "a thread writes nine in a row", "writes through shared memory", "slow STS <= 0", "fixed STS >= 9"),
        ("strided_sectors", "signal_steps", "memory", "int16", "differences of a signal's samples",
         "reads every 24th of the full signal", "reads a thinned signal"),
        ("misaligned_base", "sum_tiles", "memory", "int16", "sums of 24 random tiles of 32 bytes",
         "the tiles begin at 16 bytes", "the tiles are aligned"),
        ("narrow_accesses", "saturated_sum", "memory", "int8", "saturated sums of two tensors",
         "a byte an instruction", "16 bytes an instruction", "slow LDG.E.S8 >= 1", "fixed LDG.E.128 >= 1"),
        ("partial_sector_writes", "stamps", "memory", "int64", "stamps of records",
         "8 bytes of records of 48 bytes", "an array of stamps"),
        ("wide_data", "products_wide", "memory", "int32, int8", "inner products of stretches", "values of 32 bits",
         "values of 8 bits", "slow LDG.E.128 >= 8", "fixed LDG.E.128 <= 2"),
        ("block_order_l2", "lagged_products", "memory", "int16", "autocorrelations at ten lags",
         "all stretches, then the next lag", "all lags of a stretch, then the next stretch"),
        ("no_tile", "paths", "memory", "int32", "a min-plus product",
         "reads a row and a column for each output", "tiles of 80 x 80 in shared memory", "slow LDS <= 0",
         "fixed LDS >= 1"),
        ("pointer_chasing", "discounts", "memory", "float64", "discounted sums along paths", "follows each path",
         "reads the paths written out"),
        ("shared_bank_conflicts", "running_sums", "shared", "int32", "running sums of stretches",
         "a thread's 32 values in one bank", "rows of 33 words"),
        ("shared_atomics_one_address", "row_hashes", "shared", "int16, uint64", "hashes of rows",
         "an atomic XOR a value", "shuffles", "slow ATOMS >= 1", "fixed ATOMS <= 0"),
        ("shared_instruction_bound", "filter_image", "shared", "int16", "a filter of 9 x 9 taps",
         "two shared loads a product", "25 shared loads for 72 products", "slow LDS >= 160", "fixed IMAD >= 600"),
        ("needless_barriers", "rings", "shared", "uint32", "rings of 32 cells, one a warp", "two barriers a step",
         "no barrier", "slow BAR >= 2", "fixed BAR <= 0"),
        ("one_warp_reduction", "centre", "shared", "bfloat16", "rows without their mean",
         "the first warp adds up", "every warp adds up its part", "slow BAR >= 2"),
        ("uneven_warps", "energies", "shared", "float16", "energies of the levels of pyramids", "a warp a level",
         "all warps on each level"),
        ("no_overlap", "filter_stream", "shared", "float16", "a filter over streams", "loads, waits, filters",
         "loads the next tile meanwhile", "slow LDGSTS <= 0", "fixed LDGSTS >= 1"),
        ("grid_too_small", "sign_changes", "occupancy", "int16", "changes of sign in 24 channels",
         "a block a channel", "44 blocks a channel"),
        ("tail_effect", "generators", "occupancy", "uint32", "a generator run on", "410 blocks where 396 fit",
         "4100 blocks of a tenth of the work"),
        ("occupancy_registers", "determinants", "occupancy", "float16", "means of random lines, then a determinant",
         "eliminates in registers", "a closed form", "slow registers >= 120", "fixed registers <= 40"),
        ("occupancy_shared", "kinds_seen", "occupancy", "uint16", "how many kinds a block sees", "a word a kind",
         "a bit a kind"),
        ("occupancy_block_size", "hash_drawn", "occupancy", "uint8", "hashes of random lines", "blocks of 32",
         "blocks of 224"),
        ("uneven_blocks", "larger_before", "occupancy", "int16", "how many numbers before each are larger",
         "numbers in a row a block", "numbers from both ends a block"),
        ("dependent_chain", "long_products", "occupancy", "float64", "a long product", "one chain", "six chains"),
        ("global_atomics_one_address", "flags", "occupancy", "uint64", "which flags occur", "an atomic OR a thread",
         "an atomic OR a block", "slow REDG >= 1", "slow BAR <= 0", "fixed BAR >= 1"),
        ("divergence", "encipher", "compute", "uint32", "one of three ciphers", "neighbouring lanes differ",
         "a warp has one cipher"),
        ("special_functions", "gaussians", "compute", "bfloat16", "a sum of 56 Gaussians", "an exponential each",
         "a recurrence", "slow MUFU >= 8", "fixed MUFU <= 4"),
        ("fp64_by_accident", "clip", "compute", "int16", "samples clipped softly", "constants of type double",
         "constants of type float", "slow DFMA >= 1", "fixed DFMA <= 0"),
        ("integer_division", "shuffle_pixels", "compute", "complex64", "pixels shuffled into space",
         "64-bit divisions a thread", "coordinates from the grid", "slow CALL >= 3", "fixed CALL <= 0"),
        ("constant_divergence", "decode", "compute", "uint4", "sums of codes through code books",
         "the books in constant memory", "the books in shared memory", "slow LDC >= 17", "slow LDS <= 0",
         "fixed LDS >= 32"),
        ("instruction_cache", "many_constants", "compute", "uint64", "rounds of a hash, each with its constant",
         "2400 rounds written out", "a loop", "slow code_bytes >= 200000", "fixed code_bytes <= 4096"),
        ("register_spills", "walsh", "compute", "int16", "Walsh-Hadamard transforms of 64 numbers",
         "at most 40 registers", "as many registers as it needs", "slow spill_bytes >= 100", "fixed spill_bytes <= 0"),
        ("local_array", "echoes", "compute", "float32", "echoes, each thread with its delay", "an array of the thread",
         "shared memory", "slow LDL >= 1", "slow STL >= 1", "slow spill_bytes <= 0", "fixed LDL <= 0"),
        ("fp32_for_matrix", "batch", "compute", "float16", "24 products of transposed and plain matrices",
         "FP32 units", "tensor cores", "slow FFMA >= 512", "slow HMMA <= 0", "fixed HMMA >= 1"),
        ("tensor_starved", "tf32_product", "compute", "tfloat32", "a matrix product on tensor cores",
         "operands from global memory for every instruction", "operands from tiles in shared memory",
         "slow HMMA >= 1", "slow STS <= 0", "fixed STS >= 1"),
    ),
)  # fmt: skip

CLEANS = (
    Clean("dram_copy", DEVELOPMENT, "copy_words", "uint32", "a copy of 201 MB"),
    Clean("l2_read", DEVELOPMENT, "read_l2", "uint32", "a sum of 8.7 MB, read 64 times"),
    Clean("fma_roof", DEVELOPMENT, "fma_chains", "float32", "eight chains of FMAs a thread"),
    Clean("special_roof", DEVELOPMENT, "exponential_towers", "float32", "exponentials of exponentials"),
    Clean("fused_layernorm", DEVELOPMENT, "norm_rows", "float32", "a layer normalisation in one pass"),
    Clean("cublas_bf16", DEVELOPMENT, "", "bfloat16", "cuBLAS, 4096 cubed"),
    Clean("tiny_bias", DEVELOPMENT, "add_bias", "float32", "a bias for twelve rows", "launch_latency"),
    Clean("dram_triad", VALIDATION, "triad", "float16", "a sum of two arrays of 134 MB"),
    Clean("l2_sums", VALIDATION, "weighted_l2", "float64", "weighted sums of 13 MB, read 48 times"),
    Clean("fp64_roof", VALIDATION, "fp64_chains", "float64", "six chains of FP64 FMAs a thread"),
    Clean("special_logarithms", VALIDATION, "logarithm_chains", "float32", "logarithms of logarithms"),
    Clean("fused_rmsnorm", VALIDATION, "residual_rmsnorm", "bfloat16", "residual addition and RMS norm in one pass"),
    Clean("cublas_fp16", VALIDATION, "", "float16", "cuBLAS, 6144 cubed"),
    Clean("tiny_append", VALIDATION, "append_token", "float16", "one token appended to a cache", "launch_latency"),
    Clean("dram_bits", HOLDOUT, "count_bits", "uint64", "bits counted in 303 MB"),
    Clean("l2_blend", HOLDOUT, "blend_l2", "uint8", "averages of 10 MB, read 56 times"),
    Clean("half_fma_roof", HOLDOUT, "half_chains", "float16", "six chains of paired FMAs a thread"),
    Clean("special_roots", HOLDOUT, "root_chains", "float32", "reciprocal roots of reciprocal roots"),
    Clean("fused_softmax", HOLDOUT, "fused_softmax_rows", "float16", "a softmax in one pass"),
    Clean("cublas_large", HOLDOUT, "", "bfloat16", "cuBLAS, 7168 cubed"),
    Clean("tiny_positions", HOLDOUT, "next_positions", "int64", "positions of the next tokens", "launch_latency"),
)


def _earlier() -> Iterator[Specimen]:
    """Yield the pairs of the sets that are not built: times.csv names what was captured, static.csv its kernels."""
    with (FOLDER / "static.csv").open(newline="", encoding="utf-8") as stream:
        kernels = {row["specimen"]: row["kernel"] for row in csv.DictReader(stream)}
    with (FOLDER / "captures" / "times.csv").open(newline="", encoding="utf-8") as stream:
        names = [row["specimen"] for row in csv.DictReader(stream)]
    for name in names:
        half, defect, version = name.split("/")
        if half not in BUILT and defect != "clean":
            yield Specimen(name, half, defect, version, kernels[name])


@cache
def specimens() -> tuple[Specimen, ...]:
    """Return every specimen, sorted by name as `driver --list` prints those that are built."""
    pairs = [one for pair in PAIRS for one in pair.specimens()]
    cleans = [one for clean in CLEANS for one in clean.specimens()]
    return tuple(sorted([*pairs, *cleans, *_earlier()], key=lambda one: one.name))


def main() -> None:
    """List every pair and clean kernel."""
    argparse.ArgumentParser(prog="python -m kernels.specimens.registry", description=main.__doc__).parse_args()
    for pair in PAIRS:
        print(f"{pair.half}/{pair.defect} ({pair.dtype}): {pair.computes}. Slow: {pair.slow}. Fixed: {pair.fixed}.")
    for clean in CLEANS:
        print(f"{clean.half}/clean/{clean.name} ({clean.dtype}): {clean.computes}. Answer: {clean.answer}.")


if __name__ == "__main__":
    main()
