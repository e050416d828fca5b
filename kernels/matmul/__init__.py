"""Matrix product with bias. Importing this package registers `torch.ops.kernel_ledger.matmul`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.matmul.custom_op import matmul as matmul
