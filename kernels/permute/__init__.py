"""Splitting q, k, v by heads and merging heads. Registers `torch.ops.kernel_ledger.split_permute` and `merge_heads`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.permute.custom_op import merge_heads as merge_heads
    from kernels.permute.custom_op import split_permute as split_permute
