"""Matrix times vector, plus bias. Importing this package registers `torch.ops.kernel_ledger.gemv`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.gemv.custom_op import gemv as gemv
