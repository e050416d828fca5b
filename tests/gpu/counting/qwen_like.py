"""A program of a user's: a Qwen3 of six layers in bf16 from transformers, random weights, NVTX ranges by module hooks.

The window between cudaProfilerStart and cudaProfilerStop holds one prefill and two decode steps, warmed up before.

    python tests/gpu/counting/qwen_like.py [--steps 2] [--prompt 512]
"""

import argparse
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

LAYERS = 6


def name_ranges(model: Any) -> None:
    """Push a range around each module's forward: `layers.3`, `self_attn`, `q_proj` …"""

    def push(name: str) -> Any:
        def hook(*_: Any) -> None:  # what a hook returns would replace the module's arguments
            torch.cuda.nvtx.range_push(name)

        return hook

    def pop(*_: Any) -> None:
        torch.cuda.nvtx.range_pop()

    for full, module in model.named_modules():
        parts = full.split(".")
        name = ".".join(parts[-2:]) if parts[-1].isdigit() else parts[-1]
        if name:
            module.register_forward_pre_hook(push(name))
            module.register_forward_hook(pop)


def run(model: Any, prompt: torch.Tensor, steps: int) -> None:
    """One prefill and `steps` decode steps, greedy."""
    torch.cuda.nvtx.range_push("prefill")
    out = model(prompt, use_cache=True, logits_to_keep=1)
    torch.cuda.nvtx.range_pop()
    for _ in range(steps):
        torch.cuda.nvtx.range_push("decode")
        token = out.logits[:, -1:].argmax(-1)
        out = model(token, past_key_values=out.past_key_values, use_cache=True)
        torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=LAYERS, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=32768, attn_implementation="eager",
    )  # fmt: skip
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
        prompt = torch.randint(config.vocab_size, (1, options.prompt))
    name_ranges(model)
    with torch.inference_mode():
        run(model, prompt, options.steps)
        torch.cuda.cudart().cudaProfilerStart()
        run(model, prompt, options.steps)
        torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
