"""Count what a model needs: parameters, FLOPs, bytes, and time on a GPU.

    python -m studies.accounting gpt2 --batch 4 --tokens 1024
    python -m studies.accounting llama-3-8b --gpu 'NVIDIA H200' --gpus 8
    python -m studies.accounting 70e9 --train-tokens 15e12 --gpu 'H100 SXM' --gpus 1024 --mfu 0.5
    python -m studies.accounting largest --gpu 'H100 SXM' --gpus 8
    python -m studies.accounting package.module:build

MODEL is one of these: a name of studies/accounting/models.toml; a config.json of Hugging Face (gpt2, llama, mistral,
qwen3); a number of parameters. `largest` is what so many GPUs can train at 16 bytes a parameter. `package.module:build`
is a function that returns (module, inputs): it follows the operations from shapes alone, and needs torch.

--seconds is the measured time of a step: with it, the answer has MFU and bandwidth. With --gpu it fails if the training
step does not fit. Exit code 2: wrong usage, 3: a model that does not fit or cannot be read.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress

from tabulate import tabulate

from analysis.formats.console import documented, guarded
from analysis.formats.errors import UsageError
from analysis.hardware.devices import Device
from studies.accounting import architecture as models
from studies.accounting import budget, formulas
from studies.accounting.architecture import Architecture, Shape

Rows = list[tuple[str, str]]
DEFAULT_GPU = "NVIDIA H200"


def _number(value: float) -> str:
    for size, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:,.2f} {name}"
    return f"{value:,.0f}"


def _bytes(value: float) -> str:
    return f"{value / 1e9:,.3f} GB"


def _seconds(value: float) -> str:
    return f"{value * 1e3:,.3f} ms" if value >= 1e-3 else f"{value * 1e6:,.1f} µs"


def _show(title: str, rows: Rows) -> None:
    table = tabulate(rows, tablefmt="plain", colalign=("left", "right"), disable_numparse=True)
    print(f"\n{title}\n" + "\n".join(f"  {line}" for line in table.splitlines()))


def _time_rows(name: str, gpu: Device, dtype: str, flops: float, moved: float) -> Rows:
    at = budget.roofs(gpu, dtype, flops, moved)
    return [
        (name, f"{_number(flops)}FLOP, {_bytes(moved)}"),
        ("  at the compute roof", _seconds(at.compute_s)),
        ("  at the memory roof", _seconds(at.memory_s)),
        ("  bound by", at.bound),
    ]


def _show_architecture(of: Architecture, options: argparse.Namespace, gpu: Device) -> None:
    e, dtype = budget.ITEM_BYTES[options.dtype], options.dtype
    shape = Shape(options.batch, options.tokens, 0, e)
    count = models.parameter_count(of)
    parts = [(name, f"{value:,}") for name, value in models.parameters(of).items()]
    _show(f"{of.name}: parameters", [*parts, ("all", f"{count:,}")])
    products = models.forward_products(of, shape)
    forward, backward = models.flops(products), models.flops(models.backward_products(products))
    data = count * shape.rows
    _show(
        f"FLOPs of {options.batch} x {options.tokens} tokens",
        [
            ("forward, exactly", f"{forward:,}"),
            ("forward, 2 x tokens x parameters", f"{2 * data:,}  ({2 * data / forward - 1:+.1%})"),
            ("backward, exactly", f"{backward:,}"),
            ("training, exactly", f"{forward + backward:,}"),
            ("training, 6 x tokens x parameters", f"{6 * data:,}  ({6 * data / (forward + backward) - 1:+.1%})"),
        ],
    )
    memory = budget.training_memory(
        of, shape, checkpointed=options.checkpointing, fused_attention=options.fused_attention
    )
    with_checkpoints = models.activations(of, shape, checkpointed=True)
    whole = models.activations(of, shape, fused_attention=options.fused_attention)
    _show(
        f"Bytes of a training step, {dtype}",
        [
            ("weights", _bytes(memory.weights)),
            ("gradients", _bytes(memory.gradients)),
            ("AdamW, two moments", _bytes(memory.optimizer)),
            ("data", _bytes(memory.data)),
            ("activations", _bytes(whole)),
            ("activations with checkpoints", _bytes(with_checkpoints)),
            ("all" + (", with checkpoints" if options.checkpointing else ""), _bytes(memory.total)),
            (f"KV cache of {options.batch} x {options.tokens} tokens", _bytes(models.kv_bytes(of, shape))),
        ],
    )
    decode = Shape(options.batch, 1, max(1, options.tokens - 1), e)
    train = budget.training_bytes(of, shape, checkpointed=options.checkpointing)
    decode_flops = models.flops(models.forward_products(of, decode))
    rows = _time_rows("prefill", gpu, dtype, forward, budget.forward_bytes(of, shape))
    rows += _time_rows(
        f"decode at context {decode.context}", gpu, dtype, decode_flops, budget.forward_bytes(of, decode)
    )
    rows += _time_rows("training step", gpu, dtype, forward + backward, train)
    _show(f"Least time on one {gpu.name}", rows)
    if options.seconds:
        needed = formulas.model_flops(options.formula, of, shape)
        used = budget.mfu(needed, options.seconds, gpu, dtype) / options.gpus
        moved = train / gpu.dram_bytes_per_s / options.seconds / options.gpus
        _show(
            f"A training step of {options.seconds:g} s on {options.gpus}",
            [("MFU", f"{used:.1%}"), ("of the bandwidth", f"{moved:.1%}")],
        )
    if options.gpu:
        budget.check_fits(f"A training step of {of.name}", memory.total, gpu, options.gpus)


def _show_module(spec: str, options: argparse.Namespace, gpu: Device) -> None:
    from studies.accounting.measure import trace_module  # needs torch

    name, count, forward, train = trace_module(spec)
    once, both = (sum(2 * b * m * n * k for b, m, n, k in traced.products) for traced in (forward, train))
    weights = count * budget.ITEM_BYTES[options.dtype]
    _show(
        f"{name}: {count:,} parameters",
        [
            ("FLOPs of products, forward", f"{once:,}"),
            ("FLOPs of products, forward and backward", f"{both:,}"),
            ("bytes that operations read, forward", f"{forward.read_bytes:,}"),
            ("activations", f"{train.held_bytes:,} B"),
            ("peak of a step, with gradients", f"{train.peak_bytes:,} B"),
            ("at the compute roof, forward", _seconds(once / budget.peak(gpu, options.dtype))),
            ("at the memory roof, forward", _seconds(forward.read_bytes / gpu.dram_bytes_per_s)),
        ],
    )
    if options.gpu:
        budget.check_fits(f"A training step of {name}", 3 * weights + train.peak_bytes, gpu, options.gpus)


def _show_answers(parameters: float | None, options: argparse.Namespace, gpu: Device) -> None:
    rows: Rows = []
    if parameters is None:
        largest = budget.largest_model(gpu, options.gpus)
        rows.append((f"largest model that {options.gpus} {gpu.name} train", f"{largest / 1e9:,.1f} B parameters"))
    elif options.train_tokens:
        days = budget.training_days(parameters, options.train_tokens, gpu, options.gpus, options.mfu, options.dtype)
        rows.append(("FLOPs, 6 x tokens x parameters", f"{6 * parameters * options.train_tokens:.4g}"))
        rows.append((f"days on {options.gpus} {gpu.name} at MFU {options.mfu:g}", f"{days:,.1f}"))
    else:
        rows.append(("FLOPs for each token of training", f"{6 * parameters:.4g}"))
        rows.append(("bytes with gradients and AdamW, 16 each", _bytes(budget.TRAINED_BYTES * parameters)))
    _show("Answers", rows)


def _parser() -> argparse.ArgumentParser:
    parser = documented("python -m studies.accounting", __doc__)
    parser.add_argument("model", nargs="+", metavar="MODEL")
    parser.add_argument("--batch", type=int, default=1, help="sequences")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of each sequence")
    parser.add_argument("--dtype", choices=tuple(budget.ITEM_BYTES), default="bfloat16")
    parser.add_argument("--gpu", default="", help=f"a name of devices.toml (default: {DEFAULT_GPU})")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--mfu", type=float, default=0.5, help="model FLOPs utilisation of --train-tokens")
    parser.add_argument("--train-tokens", type=float, default=0.0, help="say how many days so many tokens take")
    parser.add_argument("--seconds", type=float, default=0.0, help="measured time of a training step")
    parser.add_argument("--formula", default="products", help="of the MFU: " + ", ".join(formulas.FORMULAS))
    parser.add_argument("--checkpointing", action="store_true", help="keep only the inputs of blocks")
    parser.add_argument("--fused-attention", action="store_true", help="attention that never writes its weights")
    return parser


def _check(options: argparse.Namespace) -> None:
    if min(options.batch, options.tokens, options.gpus) < 1:
        raise UsageError("--batch, --tokens and --gpus must be 1 or more.")
    if not 0 < options.mfu <= 1 or options.seconds < 0 or options.train_tokens < 0:
        raise UsageError("--mfu must be above 0 and at most 1; --seconds and --train-tokens must not be negative.")


def account(options: argparse.Namespace) -> None:
    """Print the account of every model on the command line."""
    _check(options)
    gpu = budget.device(options.gpu or DEFAULT_GPU)
    budget.peak(gpu, options.dtype)
    for model in options.model:
        parameters = None
        with suppress(ValueError):
            parameters = float(model)
        if model == "largest" or parameters is not None:
            if parameters is not None and not parameters > 0:
                raise UsageError(f"A model cannot have {model} parameters: use a positive number.")
            _show_answers(parameters, options, gpu)
        elif ":" in model:
            _show_module(model, options, gpu)
        else:
            of = models.find(model)
            _show_architecture(of, options, gpu)
            if options.train_tokens:
                _show_answers(float(models.parameter_count(of)), options, gpu)


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)

    def program() -> int:
        account(options)
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
