"""Record which modules each kernel of torch.compile fuses, as Inductor knows it while it writes its code.

Inductor calls one function for each kernel call that it writes. The operations behind that call say in which modules
the program called them. This runs in the program's own process and needs its torch alone. Caches of compiled code are
off meanwhile, as code that comes from a cache is not written again.
"""

import contextlib
import re
import sys

MODULE, FUNCTION = "torch._inductor.debug", "set_kernel_post_grad_provenance_tracing"
NO_CACHE = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
_NUMBER = "_kernel_ledger_number"
_PART = re.compile(r"\['?([^'\]]+)'?\]|([^.\[\]]+)")


def module_of(node):
    """The path of the innermost module that called an operation below the compiled one: `layers.0.mlp`.

    `itself` for the compiled module, '' where no module did.
    """
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    # L['self'].layers.0.mlp, or L['self']._modules['layers']._modules['0'].mlp: the first name is the compiled module's
    parts = [one or other for one, other in _PART.findall(path.removeprefix("L"))]
    return ".".join(part for part in parts[1:] if part != "_modules") or ("itself" if parts else "")


class Kernels:
    """The calls of kernels in the order in which Inductor wrote them, by graph."""

    def __init__(self):
        self.rows, self._graphs = [], 0

    def listen(self, debug):
        """Be told of every kernel call from now on; `debug` is Inductor's module of that name."""
        setattr(debug, FUNCTION, self.wrapped(getattr(debug, FUNCTION)))

    def wrapped(self, plain):
        """Inductor's function that is told of each call, with a note of it before."""

        def noted(schedule, kernel, *args, **kwargs):
            with contextlib.suppress(Exception):  # another Inductor than we know: the program is compiled all the same
                self._note(schedule, kernel)
            return plain(schedule, kernel, *args, **kwargs)

        return noted

    def _note(self, schedule, kernel):
        graph = sys.modules["torch._inductor.virtualized"].V.graph
        if not hasattr(graph, _NUMBER):
            setattr(graph, _NUMBER, self._graphs)
            self._graphs += 1
        nodes = dict.fromkeys(_operations(schedule))
        modules = dict.fromkeys(map(module_of, nodes))
        operations = dict.fromkeys(str(node.target) for node in nodes)
        self.rows.append(
            (
                getattr(graph, _NUMBER), int(bool(getattr(graph, "is_backward", False))), len(self.rows), kernel,
                ";".join(sorted(modules)), ";".join(operations),
            )
        )  # fmt: skip


def _operations(schedule):
    """The operations of the program's graph behind a call: of a list of fused ones, or of a library's kernel."""
    if not isinstance(schedule, (list, tuple)):
        yield from _called(schedule)
        return
    for one in schedule:
        for inner in one.get_nodes() if hasattr(one, "get_nodes") else ():
            if getattr(inner, "node", None) is not None:
                yield from _called(inner.node)


def _called(node):
    yield from (one for one in node.origins if one.op == "call_function")
