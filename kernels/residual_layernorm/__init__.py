"""Residual addition and layer normalisation. Importing registers `torch.ops.kernel_ledger.residual_layernorm`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.residual_layernorm.custom_op import residual_layernorm as residual_layernorm
