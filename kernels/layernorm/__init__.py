"""Layer normalisation. Importing this package registers `torch.ops.kernel_ledger.layernorm`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.layernorm.custom_op import layernorm as layernorm
