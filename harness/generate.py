"""Continue a text with GPT-2, by any engine, and say how long a token takes.

    python -m harness.generate --engine graph --weights gpt2 --prompt "The GPU" --tokens 200
    python -m harness.generate --engine persistent --temperature 0.8 --top 40 --seed 1
    python -m harness.generate --engine graph --device cpu --config n_layer=2,n_embd=128,n_head=2

Engines (harness/decode/engines.py): eager launches our best kernel for every operation. graph replays the same step as
one CUDA graph. few launches four kernels a layer. persistent launches one kernel for many tokens. If an engine does not
support the model or the GPU, the program prints why and uses graph. Random weights have no tokenizer: the bytes of the
prompt are its tokens, and the program prints the new tokens as numbers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import torch

from analysis.formats.console import guarded
from analysis.formats.errors import InputError, UsageError
from harness.console import progress, say
from harness.decode.engines import ENGINES, GRAPH, Engine, open_engine
from harness.run import DTYPES, parse_config
from harness.weights import RANDOM, Weights, decode_tokens, encode_prompt, load_weights
from kernels.decode.contract import Sampling

PROMPT = "The GPU reads every weight once for each token, so"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness.generate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=ENGINES, default=GRAPH)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--tokens", type=int, default=128, help="new tokens")
    parser.add_argument("--weights", default=RANDOM, help="random (default), gpt2, a folder, a .safetensors file")
    parser.add_argument(
        "--config", default="", help="sizes of random weights, such as n_layer=24,n_embd=1024,n_head=16"
    )
    parser.add_argument("--dtype", choices=tuple(DTYPES), help="default: bfloat16 on a GPU, float32 on the CPU")
    parser.add_argument("--batch", type=int, default=1, help="sequences at a time, 1 to 8, all of the same prompt")
    parser.add_argument("--context", type=int, help="tokens that the cache holds (default: the model's positions)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 (default) takes the largest logit")
    parser.add_argument("--top", type=int, default=0, help="draw from so many of the largest logits (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU if there is one")
    return parser


def _device(asked: str | None) -> str:
    if asked == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"--device cuda needs an NVIDIA GPU and torch {torch.__version__} sees none: use --device cpu."
        )
    return asked or ("cuda" if torch.cuda.is_available() else "cpu")


def generate(options: argparse.Namespace) -> tuple[Engine, Weights, float]:
    """Run the engine, and return it with the weights and the seconds of the steps after the first token.

    Raises: UsageError, InputError for invalid arguments.
    """
    if options.tokens < 1:
        raise UsageError("--tokens must be 1 or more.")
    if options.temperature < 0 or options.top < 0:
        raise UsageError("--temperature and --top cannot be negative: 0 turns them off.")
    if options.config and options.weights != RANDOM:
        raise UsageError("--config sizes random weights and a checkpoint has its own: leave one of the two out.")
    device = _device(options.device)
    weights = load_weights(options.weights, options.seed, parse_config(options.config) if options.config else None)
    ids = torch.tensor([encode_prompt(options.prompt, weights)] * options.batch, dtype=torch.int64)
    engine = open_engine(
        options.engine,
        weights,
        dtype=options.dtype or ("bfloat16" if device == "cuda" else "float32"),
        device=device,
        batch=options.batch,
        capacity=options.context,
        sampling=Sampling(options.temperature, options.top, options.seed),
    )
    engine.check_room(ids.shape[1] + options.tokens - 1, "The prompt and its continuation")
    engine.prefill(ids.to(device))
    engine.check()
    started = time.perf_counter()
    engine.decode(options.tokens - 1)
    engine.check()
    return engine, weights, time.perf_counter() - started


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    options = _parser().parse_args(argv)

    def program() -> int:
        torch.set_float32_matmul_precision("highest")
        engine, weights, seconds = generate(options)
        for row in engine.tokens[:, -options.tokens :].tolist():
            say(decode_tokens(row, weights))
        if steps := options.tokens - 1:
            rate = engine.sizes.batch * steps / seconds if seconds else float("inf")
            progress(f"engine {engine.name}: {seconds / steps * 1e6:.1f} µs a token, {rate:.0f} tokens/s")
        return 0

    return guarded(program, "a smaller --context, --batch or model")


if __name__ == "__main__":
    sys.exit(main())
