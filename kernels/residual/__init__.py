"""The residual addition. Importing this package registers `torch.ops.kernel_ledger.residual`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.residual.custom_op import residual as residual
