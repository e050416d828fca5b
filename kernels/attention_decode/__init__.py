"""Attention of one query over a KV cache. Importing this package registers `torch.ops.kernel_ledger.attention_decode`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.attention_decode.custom_op import attention_decode as attention_decode
