"""Run our attention inside Hugging Face transformers.

    import kernels.integrations.transformers
    model = AutoModelForCausalLM.from_pretrained("gpt2", attn_implementation="kernel_ledger")

The import registers two names. "kernel_ledger" computes attention in our fused kernels. "kernel_ledger_softmax"
keeps PyTorch's two matrix products and replaces the scale, mask and softmax between them by one kernel of ours. Calls
that a name does not support go to transformers' "sdpa". The first such call for each reason warns with the reason.

Masks. transformers calls `causal_spans` for the mask of a forward pass. Most passes need none. The others get a small
tensor instead of a (B, 1, Tq, Tk) mask: `spans`, int32 (B, 1, 1, 3). For each sequence it holds the first key that is
no padding, the number of keys up to the last query (`end`), and the window. Query i of Tq is at place
`end - Tq + i`. It sees the keys j with first <= j <= place and j > place - window.
"""

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch

from kernels.attention.custom_op import attention
from kernels.attention.op import HEAD_SIZE
from kernels.attention.op import SCALE as ATTENTION_SCALE
from kernels.attention_decode.custom_op import attention_decode
from kernels.attention_grouped.custom_op import attention_grouped
from kernels.attention_grouped.op import HEAD_SIZES, NO_WINDOW, seen
from kernels.integrations import hidden_package
from kernels.softmax.custom_op import causal_softmax

NAME = "kernel_ledger"
SOFTMAX_NAME = "kernel_ledger_softmax"
DTYPES = (torch.float32, torch.bfloat16)
# arguments that do not change which keys a query sees, or that `_refused` checks itself
HARMLESS = frozenset(
    {"sliding_window", "output_attentions", "output_hidden_states", "use_cache", "position_ids", "cache_position",
     "return_dict", "logits_to_keep", "past_key_values", "num_items_in_batch", "is_causal"}
)  # fmt: skip

_theirs: dict[str, Callable[..., Any]] = {}  # functions of transformers, as `register` imported them


class IntegrationError(ImportError):
    """transformers cannot be used from here; the message is one sentence for the user."""


# --- warnings ----------------------------------------------------------------------------------------------------
@functools.cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"kernel_ledger attention falls back to sdpa: {reason}.", stacklevel=2)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _warn(reason: str) -> bool:
    # torch.compile runs this while it traces and does not record it, so there is no graph break
    _warn_once(reason)
    return True


def forget_warnings() -> None:
    """Let each reason warn again."""
    _warn_once.cache_clear()


# --- masks -------------------------------------------------------------------------------------------------------
def _window_of(mask_function: Callable[..., Any]) -> int | None:
    """Return the window of a causal mask function, NO_WINDOW if it has none; None for any other function."""
    causal = _theirs["causal_mask"]
    if mask_function is causal:
        return NO_WINDOW
    parts = _closure(mask_function).get("mask_functions", ())
    if len(parts) == 2 and parts[1] is causal:
        overlay = _closure(parts[0])
        if parts[0].__qualname__ == "sliding_window_overlay.<locals>.inner_mask" and list(overlay) == [
            "sliding_window"
        ]:
            return int(overlay["sliding_window"])
    return None


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    cells = getattr(function, "__closure__", None) or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


def _values_are_unknown(tensor: torch.Tensor) -> bool:
    """Return whether a compiler traces or a CUDA graph records, so that nobody can read the tensor's values."""
    return torch.compiler.is_compiling() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _first_keys(attention_mask: torch.Tensor, seen: int) -> tuple[str, list[int]]:
    """Return why spans cannot express a bool padding mask (B, T), "" if they can.

    The second result is the first unpadded key of each sequence.

    It copies the mask to the host, which takes one wait for the GPU and no launch.
    """
    kept = attention_mask[:, :seen].cpu().numpy()
    if kept.all():
        return "", []
    first = kept.argmax(-1)
    if (kept.sum(-1) != kept.shape[1] - first).any():
        return "the batch is padded on the right, or between its tokens: pad it on the left", []
    return "", first.tolist()


def causal_spans(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: torch.Tensor | None = None,
    allow_is_causal_skip: bool = True,
    device: Any = "cpu",
    **options: Any,
) -> torch.Tensor | None:
    """Return the mask for the attention functions: None, spans, or uint8 (B, 1, Tq, Tk) for sdpa.

    The arguments are those of transformers' mask functions. `q_offset` is a tensor if a static cache counts its tokens
    on the GPU; its value then stays on the GPU, unless there is a padding mask. Warns if only sdpa supports the mask.
    """
    window = NO_WINDOW if mask_function is None else _window_of(mask_function)
    reason = ""
    first: list[int] = []  # of a padded batch
    if window is None:
        reason = "the mask is not a causal one, with or without a sliding window"
    elif attention_mask is not None:
        if _values_are_unknown(attention_mask):
            reason = "a padding mask reached a compiled or recorded forward pass, which cannot look at it"
        else:
            q_offset = int(q_offset)
            reason, first = _first_keys(attention_mask, q_offset + q_length)
    if reason or window is None:
        _warn(reason)
        mask = _theirs["sdpa_mask"](
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask,
            allow_is_causal_skip=False, device=device, **options,
        )  # fmt: skip
        return mask.to(torch.uint8)
    known = allow_is_causal_skip and not any(first) and not isinstance(q_offset, torch.Tensor)
    if known and kv_length <= window:
        last_sees_all = q_length == 1 and q_offset + 1 == kv_offset + kv_length
        if last_sees_all or q_length == kv_length or (q_offset == 0 and q_length > 1):
            return None
    end = q_offset + (q_length - kv_offset)
    if any(first):  # made on the host: one copy
        rows = [[max(key - kv_offset, 0), end, window] for key in first]
        return torch.tensor(rows, dtype=torch.int32, device=device)[:, None, None]
    spans = torch.zeros(batch_size, 1, 1, 3, dtype=torch.int32, device=device)
    spans[..., 1] = end
    spans[..., 2] = window
    return spans


def mask_of_spans(spans: torch.Tensor, queries: int, keys: int) -> torch.Tensor:
    """Return the bool mask (B, 1, Tq, Tk) of spans, True where a query sees a key."""
    return seen(spans.view(-1, 3), queries, keys, spans.device)


# --- attention ---------------------------------------------------------------------------------------------------
def _refused(
    module: Any, q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, dropout: float, options: dict[str, Any]
) -> str:
    """Return why neither of our two functions supports a call, "" if one may."""
    causal = options.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        return "the layer is not causal (cross-attention, or an encoder)"
    if dropout:
        return f"dropout is on ({dropout})"
    if options.get("output_attentions"):
        return "output_attentions asks for the attention weights, which are never stored"
    if q.dtype not in DTYPES:
        return f"the dtype is {str(q.dtype).removeprefix('torch.')}, not float32 or bfloat16"
    for name, value in options.items():
        if value is not None and name not in HARMLESS:
            return f"the model gives its attention {name}, which these kernels do not know"
    if mask is not None and mask.dtype != torch.int32 and mask.dtype != torch.uint8:
        return "the mask came with four axes, so that nobody knows whether it is causal"
    if mask is None and _visible_window(options) < k.shape[2]:
        return "the layer has a sliding window that its mask does not show"
    return ""


def _visible_window(options: dict[str, Any]) -> int:
    return options.get("sliding_window") or NO_WINDOW


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _capability(device: torch.device) -> int:
    """90 for compute capability 9.0; 0 for the CPU, where every variant is the PyTorch chain."""
    if device.type != "cuda":
        return 0
    return _asked(device)


@functools.cache  # the query takes longer than a launch
def _asked(device: torch.device) -> int:
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def attention_variant(dtype: torch.dtype, capability: int) -> str:
    """Return the rung of `attention` (64 channels, as many key heads as query heads) for a GPU; "" if none runs there.

    It is chosen before anything is compiled: v06 needs compute capability 9.0 exactly, v03 and v04 need 8.0 or later.
    """
    if 0 < capability < 80:
        return ""
    if dtype == torch.float32:
        return "v03_tiled"
    return "v06_small" if capability in (0, 90) else "v04_mma"


def grouped_variant(dtype: torch.dtype, capability: int, queries: int) -> str:
    """Return the rung of `attention_grouped` or of `attention_decode_grouped` for a GPU."""
    hopper, ampere = capability in (0, 90), not 0 < capability < 80
    if queries == 1:
        return "v05_cluster" if dtype == torch.bfloat16 and hopper else "v03_split"
    if dtype == torch.float32:
        return "v09_split_tf32" if ampere else "v01_tiled"
    return "v08_ring" if hopper else "v02_mma" if ampere else "v01_tiled"


def _unfit(q: torch.Tensor, k: torch.Tensor, capability: int) -> str:
    """Return why the fused kernels do not support a call that `_refused` accepts, "" if they do."""
    size = q.shape[3]
    if size not in HEAD_SIZES:
        return f"the head size is {size}, not 64 or 128"
    if 0 < capability < 75:
        return f"compute capability {capability / 10} is below 7.5"
    if 0 < capability < 80 and size > 64 and q.shape[2] > 1:
        return f"head size {size} needs more shared memory than compute capability {capability / 10} has"
    return ""


def _to_sdpa(
    module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, **options: Any
) -> tuple[torch.Tensor, None]:
    if mask is not None and mask.dtype == torch.int32:
        mask = mask_of_spans(mask, q.shape[2], k.shape[2])
    elif mask is not None and mask.dtype == torch.uint8:
        mask = mask.bool()
    if options.get("output_attentions"):
        options["output_attentions"] = False  # otherwise sdpa would warn too
    output: tuple[torch.Tensor, None] = _theirs["sdpa"](module, q, k, v, mask, **options)
    return output


def _of_its_own_keys(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values without the rows that an empty static cache has after the queries."""
    queries = q.shape[2]
    return (k[:, :, :queries], v[:, :, :queries]) if 1 < queries < k.shape[2] else (k, v)


def attention_forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Compute causal attention in our fused kernels. transformers' registry calls this under "kernel_ledger".

    Shape: query (B, nh, Tq, hs), key and value (B, nkv, Tk, hs). Returns (B, Tq, nh, hs), and None for the weights.
    """
    reason = _refused(module, query, key, attention_mask, dropout, options)
    if not reason and (attention_mask is None or attention_mask.dtype == torch.int32):
        capability = _capability(query.device)
        reason = _unfit(query, key, capability)
        if not reason:
            scale = query.shape[3] ** -0.5 if scaling is None else scaling
            return _fused(query, key, value, attention_mask, scale, capability), None
    if reason:
        _warn(reason)
    return _to_sdpa(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options)


def _fused(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: torch.Tensor | None, scale: float, capability: int
) -> torch.Tensor:
    """Attention as (B, Tq, nh, hs), with the faster kernels for ungrouped heads if these support the call."""
    queries = q.shape[2]
    if spans is None and q.shape[3] == HEAD_SIZE and q.shape[1] == k.shape[1]:
        if queries == 1:
            return attention_decode(q, k, v, scale).transpose(1, 2)
        variant = attention_variant(q.dtype, capability)
        in_place = q.is_contiguous() or variant != "v06_small"  # else one copy a tensor costs more than v08_ring
        if variant and in_place and math.isclose(scale, ATTENTION_SCALE, rel_tol=1e-6):
            k, v = _of_its_own_keys(q, k, v)
            return attention(q, k, v, variant).transpose(1, 2).contiguous()
    if spans is None:
        k, v = _of_its_own_keys(q, k, v)
    else:
        spans = spans.view(-1, 3)
    return attention_grouped(q, k, v, spans, scale, grouped_variant(q.dtype, capability, queries))


def softmax_forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention as two matrix products with our scale + mask + softmax between them.

    transformers' registry calls this under "kernel_ledger_softmax". Shapes are those of `attention_forward`.
    """
    reason = _refused(module, query, key, attention_mask, dropout, options)
    if not reason and attention_mask is not None and attention_mask.dtype == torch.int32:
        reason = "the batch is padded, the cache is static, or a window hides keys, and the fused softmax hides none"
    if reason or attention_mask is not None:
        if reason:
            _warn(reason)
        return _to_sdpa(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options)
    k, v = _of_its_own_keys(query, key, value)
    groups = query.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    weights = causal_softmax(query @ k.transpose(-1, -2), scale)
    return (weights @ v).transpose(1, 2).contiguous(), None


# --- transformers ------------------------------------------------------------------------------------------------
def _transformers() -> Any:
    """Return the module transformers. Raises IntegrationError, one sentence, if it cannot be imported."""
    if version := hidden_package():
        raise IntegrationError(
            f"The Hugging Face package `kernels` {version} is installed and this repository's folder kernels/ hides it "
            "from transformers: run `pip uninstall kernels` in this environment."
        )
    try:
        import transformers
    except ImportError as error:
        raise IntegrationError(f"transformers cannot be imported ({error}): run `pip install transformers`.") from error
    return transformers


def register() -> None:
    """Register both names with transformers' attention and mask functions.

    Raises: IntegrationError if transformers is missing, hidden, or too old to have the registries.
    """
    transformers = _transformers()
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
        from transformers.masking_utils import causal_mask_function, sdpa_mask
    except ImportError as error:
        raise IntegrationError(
            f"transformers {transformers.__version__} has no registry of attention functions: install release 5.17."
        ) from error
    _theirs.update(sdpa=sdpa_attention_forward, sdpa_mask=sdpa_mask, causal_mask=causal_mask_function)
    for name, function in ((NAME, attention_forward), (SOFTMAX_NAME, softmax_forward)):
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, causal_spans)


register()
