"""GELU, alone and behind a bias. Importing this package registers `torch.ops.kernel_ledger.gelu` and `bias_gelu`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.gelu.custom_op import bias_gelu as bias_gelu
    from kernels.gelu.custom_op import gelu as gelu
