"""Causal attention of heads of 64. Importing this package registers `torch.ops.kernel_ledger.attention` and its window.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.attention.custom_op import attention as attention
    from kernels.attention.custom_op import attention_windowed as attention_windowed
