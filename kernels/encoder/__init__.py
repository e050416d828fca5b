"""Token plus position embedding. Importing this package registers `torch.ops.kernel_ledger.encoder`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.encoder.custom_op import encoder as encoder
