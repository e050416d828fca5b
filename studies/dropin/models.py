"""Name the models of the study: shapes of published models, with random weights, and small ones of the same kind."""

from typing import Any, NamedTuple

GPT2 = "gpt2"


class Kind(NamedTuple):
    """A configuration class of transformers, the sizes of a published model, and those of a small one for a CPU.

    no_graph   why no CUDA graph can record a step of it; "" if one can
    """

    config: str
    sizes: dict[str, Any]
    small: dict[str, Any]
    no_graph: str = ""


def _gpt2(layers: int, channels: int, heads: int) -> Kind:
    small = {"n_layer": 2, "n_embd": 128, "n_head": 2, "n_positions": 64, "vocab_size": 256}
    return Kind("GPT2Config", {"n_layer": layers, "n_embd": channels, "n_head": heads}, small)


_TWO_LAYERS = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "hidden_size": 256,
    "intermediate_size": 256, "vocab_size": 256, "max_position_embeddings": 64,
}  # fmt: skip
MODELS = {
    GPT2: _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "opt-1.3b": Kind(
        "OPTConfig",
        {"num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 32, "ffn_dim": 8192,
         "word_embed_proj_dim": 2048},
        {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "ffn_dim": 128,
         "word_embed_proj_dim": 128, "vocab_size": 256, "max_position_embeddings": 64},
        "OPT reads the length of its static cache on the host",
    ),
    "llama-3.2-1b": Kind(
        "LlamaConfig",
        {"num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
         "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True},
        _TWO_LAYERS,
    ),
    "qwen3-0.6b": Kind(
        "Qwen3Config",
        {"num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
         "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "tie_word_embeddings": True},
        _TWO_LAYERS,
    ),
}  # fmt: skip
