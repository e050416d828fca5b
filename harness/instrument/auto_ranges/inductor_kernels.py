"""Record which modules each kernel of torch.compile fuses: Inductor knows them while it generates code.

Inductor calls one function for each kernel call that it generates. Each operation behind that call knows the modules in
which the program called it. This file runs in the program's process and needs only its torch. The caches of compiled
code are off meanwhile, because Inductor does not generate code that it finds in a cache.
"""

import contextlib
import re
import sys

MODULE, FUNCTION = "torch._inductor.debug", "set_kernel_post_grad_provenance_tracing"
NO_CACHE = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
_NUMBER = "_kernel_ledger_number"
_PART = re.compile(r"\['?([^'\]]+)'?\]|([^.\[\]]+)")


def module_of(node):
    """Return the path of the innermost module that called an operation, below the compiled module: `layers.0.mlp`.

    Return `itself` if the compiled module called it, '' if no module did.
    """
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    # L['self'].layers.0.mlp, or L['self']._modules['layers']._modules['0'].mlp: the first name is the compiled module's
    parts = [one or other for one, other in _PART.findall(path.removeprefix("L"))]
    return ".".join(part for part in parts[1:] if part != "_modules") or ("itself" if parts else "")


class Kernels:
    """The kernel calls of all graphs, in the order in which Inductor generated them.

    A row is (graph, 1 in a backward graph, place, kernel, modules, operations, places of the calls whose results it
    reads); `;` separates modules, operations and places.
    """

    def __init__(self):
        self.rows, self._graphs, self._made = [], 0, {}

    def listen(self, debug):
        """Record every kernel call from now on; `debug` is Inductor's module of that name."""
        setattr(debug, FUNCTION, self.wrapped(getattr(debug, FUNCTION)))

    def wrapped(self, plain):
        """Return Inductor's function that runs for each call, with our note before it."""

        def noted(schedule, kernel, *args, **kwargs):
            with contextlib.suppress(Exception):  # an unknown version of Inductor must still compile the program
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
        reads = self._reads(nodes)
        self._made.update(dict.fromkeys(nodes, len(self.rows)))
        self.rows.append(
            (
                getattr(graph, _NUMBER), int(bool(getattr(graph, "is_backward", False))), len(self.rows), kernel,
                ";".join(sorted(modules)), ";".join(operations), ";".join(map(str, reads)),
            )
        )  # fmt: skip

    def _reads(self, nodes):
        """Return the places of the calls that made what these operations read; a view stands for its source."""
        found, todo, seen = set(), [one for node in nodes for one in node.all_input_nodes], set(nodes)
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in self._made:
                found.add(self._made[node])
            else:
                todo += node.all_input_nodes
        return sorted(found)


def _operations(schedule):
    """Yield the operations of the program's graph behind a kernel call: of a list of fused nodes, or of one kernel."""
    if not isinstance(schedule, (list, tuple)):
        yield from _called(schedule)
        return
    for one in schedule:
        for inner in one.get_nodes() if hasattr(one, "get_nodes") else ():
            if getattr(inner, "node", None) is not None:
                yield from _called(inner.node)


def _called(node):
    yield from (one for one in node.origins if one.op == "call_function")
