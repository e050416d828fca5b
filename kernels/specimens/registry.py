"""One declaration for each specimen: what it computes, which defect its slow version has, what its fixed twin does.

The kernels stand in `<half>/<source>.cu` as `<kernel>_slow` and `<kernel>_fixed`, clean ones as `<kernel>`; sizes and
blocks stand there too. Each defect has the pair of the holdout here; the history has the sources of the other two sets
(commit 795c8cc0), whose captures score the rules. `evidence` is what the machine code must show of the defect, as far
as that can be told without running it: `slow LDL >= 1` counts instructions by their opcode, or bytes and registers by
the columns of static.csv.

    python -m kernels.specimens.registry        lists all
"""

from __future__ import annotations

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
    source: Path


@dataclass(frozen=True)
class Pair:
    """A slow kernel and its fixed twin, of one of SETS."""

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
        stem, file = f"{self.half}/{self.defect}", FOLDER / self.half / f"{self.source}.cu"
        return [
            Specimen(f"{stem}/{version}", self.half, self.defect, version, f"{self.kernel}_{version}", file)
            for version in ("slow", "fixed")
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
        return [Specimen(name, self.half, self.answer, "clean", self.kernel, FOLDER / self.half / "clean.cu")]


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
        DEVELOPMENT,
        ("uncoalesced_loads", "row_sums", "memory", "float32", "sums of rows", "a thread a row", "a warp a row"),
        ("uncoalesced_stores", "transpose_stores", "memory", "float32", "a transpose", "writes down columns",
         "writes rows of a tile in shared memory", "slow STS <= 0", "fixed STS >= 1"),
        ("strided_sectors", "charges", "memory", "float32", "squares of one field",
         "reads it out of structs of 32 bytes",
         "reads an array of it"),
        ("misaligned_base", "sum_bags", "memory", "float32", "sums of 16 random rows of 32 bytes",
         "the table begins at 4 bytes",
         "the table is aligned"),
        ("narrow_accesses", "brighten", "memory", "uint8", "brighter pixels", "a byte a thread", "16 bytes a thread",
         "slow LDG.E.U8 >= 1", "fixed LDG.E.128 >= 1"),
        ("partial_sector_writes", "kick", "memory", "float32", "half of each force", "writes one field of structs",
         "writes an array of it"),
        ("wide_data", "count_labels", "memory", "int64, uint8", "how many labels are 17", "labels of 64 bits",
         "labels of 8 bits", "slow LDG >= 8", "fixed LDG <= 1"),
        ("block_order_l2", "power_sums", "memory", "float32", "sums of powers of chunks",
         "all chunks, then the next power",
         "all powers of a chunk, then the next chunk"),
        ("no_tile", "product", "memory", "float32", "a matrix product", "reads a row and a column for each output",
         "tiles of 64 x 64 in shared memory", "slow LDS <= 0", "fixed LDS >= 1"),
        ("pointer_chasing", "list_sums", "memory", "float32", "sums over linked lists", "follows each list",
         "reads the lists written out"),
        ("shared_bank_conflicts", "flip", "shared", "float32", "a transpose through a tile", "rows of 32 words",
         "rows of 33 words"),
        ("shared_atomics_one_address", "block_sums", "shared", "float32", "sums of blocks",
         "atomic additions to one word",
         "shuffles", "slow ATOMS >= 1", "fixed ATOMS <= 0"),
        ("shared_instruction_bound", "tiled_product", "shared", "float32", "a matrix product by tiles",
         "an output a thread", "8 x 8 outputs a thread", "slow LDS >= 33", "slow FFMA <= 32", "fixed FFMA >= 512"),
        ("needless_barriers", "logistic", "shared", "float32", "an iterated map", "two barriers a step", "no barrier",
         "slow BAR >= 2", "fixed BAR <= 0"),
        ("one_warp_reduction", "normalise", "shared", "float32", "rows over their sums", "the first warp adds up",
         "every warp adds up its part"),
        ("uneven_warps", "triangular", "shared", "float32", "triangular matrices times vectors",
         "warps have rows of different length", "warps have neighbouring rows"),
        ("no_overlap", "chunks", "shared", "float32", "sums of polynomials of chunks", "loads, waits, computes",
         "loads the next chunk meanwhile", "slow LDGSTS <= 0", "fixed LDGSTS >= 1"),
        ("grid_too_small", "squares", "occupancy", "float32", "sums of squares of 16 rows", "a block a row",
         "66 blocks a row"),
        ("tail_effect", "iterated", "occupancy", "float32", "an iterated map", "276 blocks where 264 fit",
         "2208 blocks of an eighth of the work"),
        ("occupancy_registers", "drawn_polynomials", "occupancy", "float32", "polynomials of means of random lines",
         "128 polynomials at once", "16 polynomials at once", "slow registers >= 128", "fixed registers <= 40"),
        ("occupancy_shared", "weighted_draws", "occupancy", "float32", "weighted sums of random lines",
         "96 KiB of shared memory a block", "192 bytes of shared memory a block"),
        ("occupancy_block_size", "largest_drawn", "occupancy", "float32", "largest of random lines", "blocks of 32",
         "blocks of 256"),
        ("uneven_blocks", "sparse_sums", "occupancy", "float32", "sums of rows of very different length",
         "a block a row", "a block for 1024 elements"),
        ("dependent_chain", "horner", "occupancy", "float32", "a polynomial of high degree", "one chain",
         "eight chains"),
        ("global_atomics_one_address", "total", "occupancy", "float32", "a sum", "an atomic addition a thread",
         "an atomic addition a block", "slow REDG >= 1", "slow BAR <= 0", "fixed BAR >= 1"),
        ("divergence", "kinds", "compute", "float32", "one of eight polynomials", "neighbouring lanes differ",
         "a warp has one kind", "slow BRX >= 1"),
        ("special_functions", "sines", "compute", "float32", "a series of 64 sines", "64 sines", "a recurrence",
         "slow MUFU >= 8", "fixed MUFU <= 2"),
        ("fp64_by_accident", "damped", "compute", "float32", "a damped iteration", "literals of type double",
         "literals of type float", "slow DFMA >= 1", "slow F2F >= 1", "fixed DFMA <= 0"),
        ("integer_division", "swap_axes", "compute", "float32", "two axes swapped", "64-bit divisions a thread",
         "coordinates from the grid", "slow CALL >= 3", "fixed CALL <= 0"),
        ("constant_divergence", "through_curve", "compute", "uint8", "bytes through a curve",
         "the curve in constant memory",
         "the curve in shared memory", "slow LDC >= 17", "slow LDS <= 0", "fixed LDS >= 16"),
        ("instruction_cache", "rounds", "compute", "uint32", "rounds of a hash on four seeds",
         "2048 rounds written out", "4 rounds in a loop", "slow code_bytes >= 200000", "fixed code_bytes <= 4096"),
        ("register_spills", "spilled_product", "compute", "float32", "a matrix product, 8 x 8 outputs a thread",
         "at most 32 registers", "as many registers as it needs", "slow spill_bytes >= 1000",
         "fixed spill_bytes <= 0"),
        ("local_array", "counts", "compute", "int32", "counts of 64 kinds a thread", "an array of the thread",
         "shared memory", "slow LDL >= 1", "slow STL >= 1", "slow spill_bytes <= 0", "fixed LDL <= 0"),
        ("fp32_for_matrix", "half_product", "compute", "bfloat16", "a matrix product", "FP32 units", "tensor cores",
         "slow FFMA >= 512", "slow HMMA <= 0", "fixed HMMA >= 1"),
        ("tensor_starved", "starved", "compute", "bfloat16", "a matrix product on tensor cores",
         "operands from global memory for every instruction", "operands from tiles in shared memory",
         "slow HMMA >= 1",
         "slow STS <= 0", "fixed STS >= 1"),
    ),
    *_pairs(
        VALIDATION,
        ("uncoalesced_loads", "turn", "memory", "uint16", "a transpose", "reads down columns",
         "reads rows into shared memory", "slow STS <= 0", "fixed STS >= 1"),
        ("uncoalesced_stores", "expand_bits", "memory", "int32", "bits as integers", "a thread writes 32 in a row",
         "a thread writes one at a time"),
        ("strided_sectors", "count_below", "memory", "int32", "keys below a limit",
         "reads them out of rows of 64 bytes",
         "reads a column of keys"),
        ("misaligned_base", "probe", "memory", "int64", "keys sought in buckets of 32 bytes",
         "the table begins at 8 bytes",
         "the table is aligned"),
        ("narrow_accesses", "axpy", "memory", "bfloat16", "a x + y", "2 bytes a thread", "16 bytes a thread",
         "slow LDG.E.U16 >= 1", "fixed LDG.E.128 >= 1"),
        ("partial_sector_writes", "mark", "memory", "uint8", "states of records", "a byte of records of 128 bytes",
         "an array of states", "slow STG.E.U8 >= 1"),
        ("wide_data", "matrix_vector", "memory", "float32, bfloat16", "a matrix times a vector", "weights of 32 bits",
         "weights of 16 bits", "slow LDG.E.128 >= 2", "fixed LDG.E.64 >= 1"),
        ("block_order_l2", "many_vectors", "memory", "float16", "a matrix times six vectors",
         "all rows, then the next vector", "all vectors of a row, then the next row"),
        ("no_tile", "distances", "memory", "float16", "distances between points", "reads two points for each pair",
         "tiles of 32 x 32 in shared memory", "slow LDS <= 0", "fixed LDS >= 1"),
        ("pointer_chasing", "look_up", "memory", "int64", "look-ups in a hash table", "chains of entries",
         "buckets side by side"),
        ("shared_bank_conflicts", "filter_rows", "shared", "float64", "a recursive filter along rows",
         "rows of 64 doubles", "rows of 65 doubles"),
        ("shared_atomics_one_address", "ledger", "shared", "uint8, uint32",
         "amounts added up by kinds, one of them frequent",
         "one copy a block",
         "one copy a lane", "slow ATOMS >= 1"),
        ("shared_instruction_bound", "taps", "shared", "int32", "a filter of 64 taps", "two shared loads a product",
         "two shared loads for 16 products", "slow LDS >= 32", "slow IMAD <= 40", "fixed IMAD >= 256"),
        ("needless_barriers", "tree_sums", "shared", "float16", "sums of rows, a row a warp", "barriers of the block",
         "barriers of the warp", "slow BAR >= 8", "fixed BAR <= 0"),
        ("one_warp_reduction", "below_largest", "shared", "int32", "distances from the largest of the row",
         "the first warp seeks it", "every warp seeks in its part", "slow BAR >= 2"),
        ("uneven_warps", "checksums", "shared", "int32", "checksums of short and long messages", "a warp a message",
         "all warps on each message"),
        ("no_overlap", "nearest", "shared", "int8", "largest inner product of byte vectors", "loads, waits, computes",
         "loads the next tile meanwhile", "slow LDGSTS <= 0", "fixed LDGSTS >= 1"),
        ("grid_too_small", "magnitudes", "occupancy", "bfloat16", "largest magnitudes of ten tensors",
         "a block a tensor",
         "106 blocks a tensor"),
        ("tail_effect", "hash_rounds", "occupancy", "uint64", "rounds of a 64-bit hash", "560 blocks where 528 fit",
         "3920 blocks of a seventh of the work"),
        ("occupancy_registers", "refined", "occupancy", "float64", "sums of random lines, a median for few",
         "sorts in registers", "counts instead of sorting", "slow registers >= 160", "fixed registers <= 32"),
        ("occupancy_shared", "count_bytes", "occupancy", "uint8", "histograms of blocks", "counters of 32 bits",
         "counters of 8 bits"),
        ("occupancy_block_size", "largest_of_row", "occupancy", "float64", "largest of short rows", "a row a block",
         "16 rows a block"),
        ("uneven_blocks", "mandelbrot", "occupancy", "float32", "the Mandelbrot set", "a band of rows a block",
         "rows in turn"),
        ("dependent_chain", "chain_sum", "occupancy", "uint32", "a multiplicative checksum", "one chain",
         "six chains"),
        ("global_atomics_one_address", "largest_key", "occupancy", "uint64", "the largest key",
         "an atomic maximum a thread", "an atomic maximum a block", "slow REDG >= 1", "slow BAR <= 0",
         "fixed BAR >= 1"),
        ("divergence", "iterate_items", "compute", "float64", "maps iterated as each item wants",
         "items of a warp far apart", "items of a warp alike"),
        ("special_functions", "logistics", "compute", "float16", "a sum of 48 logistic curves",
         "two functions a curve",
         "one reciprocal for four curves", "slow MUFU >= 16", "fixed MUFU <= 6"),
        ("fp64_by_accident", "potentials", "compute", "float16", "potentials of points", "1.0 / sqrt of a double",
         "rsqrtf",
         "slow DFMA >= 1", "fixed DFMA <= 0"),
        ("integer_division", "squares_modulo", "compute", "uint64", "squares modulo a number", "the operator %",
         "a reciprocal found once", "slow CALL >= 1", "fixed CALL <= 0"),
        ("constant_divergence", "substitute", "compute", "int32", "rounds of a substitution",
         "the table in constant memory",
         "the table in shared memory", "slow LDS <= 0", "fixed LDS >= 1"),
        ("instruction_cache", "filters", "compute", "float32", "one of 64 filters a warp", "64 filters written out",
         "one loop", "slow code_bytes >= 190000", "fixed code_bytes <= 4096"),
        ("register_spills", "sort_each", "compute", "int32", "64 integers sorted a thread", "at most 32 registers",
         "as many registers as it needs", "slow spill_bytes >= 1000", "fixed spill_bytes <= 0"),
        ("local_array", "walk", "compute", "uint32", "sums over a tree in order", "a stack of the thread", "no stack",
         "slow LDL >= 1", "slow STL >= 1", "slow spill_bytes <= 0", "fixed LDL <= 0"),
        ("fp32_for_matrix", "scores", "compute", "float16", "queries times keys", "FP32 units", "tensor cores",
         "slow FFMA >= 512", "slow HMMA <= 0", "fixed HMMA >= 1"),
        ("tensor_starved", "gram", "compute", "int8", "inner products of byte vectors",
         "operands from global memory for every instruction", "operands from tiles in shared memory",
         "slow IMMA >= 1",
         "slow STS <= 0", "fixed STS >= 1"),
    ),
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


def specimens() -> list[Specimen]:
    """Return every launch of the driver, sorted by name as `driver --list` prints them."""
    found = [one for pair in PAIRS for one in pair.specimens()] + [one for clean in CLEANS for one in clean.specimens()]
    return sorted(found, key=lambda one: one.name)


def main() -> None:
    """List every pair and clean kernel."""
    for pair in PAIRS:
        print(f"{pair.half}/{pair.defect} ({pair.dtype}): {pair.computes}. Slow: {pair.slow}. Fixed: {pair.fixed}.")
    for clean in CLEANS:
        print(f"{clean.half}/clean/{clean.name} ({clean.dtype}): {clean.computes}. Answer: {clean.answer}.")


if __name__ == "__main__":
    main()
