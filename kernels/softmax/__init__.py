"""Scale + causal mask + softmax. Importing this package registers `torch.ops.kernel_ledger.causal_softmax`.

Without torch the import still works, so that the declarations can be listed anywhere.
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from kernels.softmax.custom_op import causal_softmax as causal_softmax
