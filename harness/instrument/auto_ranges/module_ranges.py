"""Open an NVTX range around every call of a torch.nn.Module, around backward and around an optimiser's step.

    KERNEL_LEDGER_RANGES=on                    open ranges
    KERNEL_LEDGER_RANGES=measure               open ranges, and measure what a range costs
    KERNEL_LEDGER_RANGES=dataflow              open none; record which tensors operations read and write, the least work
                                               of each range, and which modules each kernel of torch.compile fuses
    KERNEL_LEDGER_RANGES=ranks                 open none; only write the rank of each process
    KERNEL_LEDGER_RANGES_OUT=FOLDER            where each process writes its cost, its dataflow and its rank
    KERNEL_LEDGER_RANGES_WORK=FILE             least work of each range; the ranges show it in nsys-ui

This file runs in the program's process. It needs the standard library and the program's torch. With the package nvtx,
ranges have a domain, colour, category and payload; without it they are ranges of torch's own NVTX. The program does not
change: modules keep their classes and attributes, and torch.compile compiles the same code as without ranges.

The name of a range is the module's path below the module that called it: `layers.0`, then `mlp`. The outermost call of
a module that has submodules is a step, `step Decoder(4 x 1024)`, with the shape of its first tensor: so a prompt and a
token are two kinds of steps. A module that is not below its caller has the name of its class. A module with several
names there has up to three of them, `embed=head`. Outside of any module, a compiled function and the replay of a CUDA
graph are steps.
"""

import atexit
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import time
import warnings
import weakref

ROUNDS, CALLS = 7, 200
WORK = "KERNEL_LEDGER_RANGES_WORK"


def _beside(path):
    """Load a module of this project by its path: the program must not find our packages on its own path."""
    spec = importlib.util.spec_from_file_location(
        f"kernel_ledger_{os.path.basename(path)[:-3]}", os.path.join(_ROOT, path)
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
_NAMES = _beside(os.path.join("analysis", "formats", "ranges.py"))
_PAYLOAD = _beside(os.path.join("harness", "payload.py"))


_INDUCTOR = _beside(os.path.join("harness", "instrument", "auto_ranges", "inductor_kernels.py"))


def wait_for_torch(mode):
    """Install the ranges as soon as the program has imported torch. A program without torch stays as it is."""
    _write_rank()
    if mode == "ranks":
        return
    if mode == "dataflow":
        os.environ.update(_INDUCTOR.NO_CACHE)  # torch reads these while the program imports it
    watch("torch", lambda torch: install(torch, mode))


def watch(name, then):
    """Call `then` with the module `name`, now or as soon as the program has imported it."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder:
    """Finds the module `name` as Python would, and calls `then` with it after its import."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            plain = spec.loader.exec_module

            def exec_module(module):
                plain(module)
                try:
                    self.then(module)
                except Exception as error:  # with an unknown version of torch, the program runs without ranges
                    print(f"kernel-ledger: no automatic ranges with this torch: {error}", file=sys.stderr)

            spec.loader.exec_module = exec_module
        return spec


# Marks --------------------------------------------------------------------------------------------------------------


class NvtxMarks:
    """Opens ranges in our NVTX domain with the package nvtx. `mark` makes a range's attributes, once for each place."""

    def __init__(self, nvtx):
        self._domain = nvtx.get_domain(_NAMES.DOMAIN)
        self.push, self.pop = self._domain.push_range, self._domain.pop_range

    def mark(self, name, kind, payload):
        attributes = {"message": name, "color": _NAMES.KINDS[kind][0], "category": kind}
        shown = _PAYLOAD.payload_of(payload)
        if shown is not None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # of a package that knows no payload of several numbers
                    return self._domain.get_event_attributes(**attributes, payload=shown)
            except Exception:
                pass
        return self._domain.get_event_attributes(**attributes)


class TorchMarks:
    """Opens ranges with torch's own NVTX: these are names in the default domain, so PREFIX stands for our domain."""

    def __init__(self, torch):
        self.push, self.pop = torch._C._nvtx.rangePushA, torch._C._nvtx.rangePop

    def mark(self, name, kind, payload):
        return f"{_NAMES.PREFIX}{name}"


class Nothing:
    """Opens no ranges, for a Python without any NVTX, such as one with a CPU build of torch."""

    def push(self, mark):
        pass

    def pop(self):
        pass

    def mark(self, name, kind, payload):
        return name


def marks(torch):
    """Return the best marks that this Python supports: NvtxMarks, else TorchMarks, else Nothing."""
    try:
        return NvtxMarks(importlib.import_module("nvtx"))
    except Exception:
        pass
    return TorchMarks(torch) if hasattr(torch._C, "_nvtx") else Nothing()


# Names --------------------------------------------------------------------------------------------------------------


def names_below(module):
    """Return id of each module below this one -> its names there. It visits each module once, so a cycle ends."""
    found, waiting, seen = {}, [("", module)], {id(module)}
    while waiting:
        prefix, parent = waiting.pop(0)
        for name, child in parent._modules.items():
            if child is None:
                continue
            found.setdefault(id(child), []).append(prefix + name)
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append((f"{prefix}{name}.", child))
    return found


def class_of(module):
    """Return the name of a module's class; for a compiled module, the class of the original."""
    return type(getattr(module, "_orig_mod", module)).__name__


def is_compiled(module):
    """Return whether torch.compile made this module or compiled its call."""
    return bool(hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None))


def own_bytes(module):
    """Return the bytes of the parameters of a module and of all below it, which a call has to read at least once."""
    try:
        return sum(one.numel() * one.element_size() for one in module.parameters())
    except Exception:  # lazy modules have no size yet
        return 0


def shape_of(torch, arguments):
    """Return the shape of the first tensor among the arguments, such as `(4 x 1024)`; '' without a tensor."""
    for one in arguments:
        if isinstance(one, torch.Tensor):
            return f"({' x '.join(map(str, one.shape))})"
    return ""


# Ranges -------------------------------------------------------------------------------------------------------------


class Place:
    """A module's call below the calls that led to it, with its mark. `inner` holds the calls inside it."""

    __slots__ = ("above", "inner", "mark", "module", "path")

    def __init__(self, above, path, module, mark):
        self.above, self.path, self.mark = above, path, mark
        self.module, self.inner = weakref.ref(module), {}


class Ranges:
    """Opens and closes the ranges of one process. `work`: path of a range -> name of a number -> the number."""

    def __init__(self, torch, marks, work=None):
        self.torch, self.marks, self.work = torch, marks, work or {}
        self._local = threading.local()
        self._known, self._outermost, self._recursive = {}, {}, {}
        self._below = weakref.WeakKeyDictionary()

    def name_below(self, caller, module):
        """Return the name of a module that `caller` calls."""
        names = self._below.get(caller)
        if names is None or id(module) not in names:  # modules may be added while the program runs
            names = self._below[caller] = names_below(caller)
        return "=".join(names.get(id(module), ())[:3]).replace("/", "|") or class_of(module)

    def of_call(self, above, module):
        """Return the place of a call inside the call of `above`. A stored place counts only for the same module.

        Python reuses the id of a module that no longer exists, so a place holds a weak reference to compare.
        """
        place = above.inner.get(id(module))
        if place is None or place.module() is not module:
            place = above.inner[id(module)] = self._made(above, module)
        return place

    def _made(self, above, module):
        """Return a new place. All deeper calls of a module inside its own call share one place, without known work."""
        caller = above.module()
        pair, outer = (id(caller), id(module)), above
        while outer is not None and outer.module() is not module:
            outer = outer.above
        if outer is not None:
            place = self._recursive.get(pair)
            if place is not None and place.module() is module:
                return place
        name = self.name_below(caller, module)
        kind = "compiled" if is_compiled(module) else _NAMES.kind_of(class_of(module), name)
        path = f"{above.path}/{name}" if above.path and outer is None else ""
        place = Place(None if outer else above, path, module, self.marked(name, kind, path, module))
        if outer is not None:
            self._recursive[pair] = place
        return place

    def of_outermost(self, module, arguments):
        """Return the place of a call outside of any module's call: a step if the module has submodules."""
        name, kind = class_of(module), "compiled" if is_compiled(module) else ""
        if module._modules:
            name, kind = f"{_NAMES.STEP}{name}{shape_of(self.torch, arguments)}", kind or "step"
        return self.outermost_place(name, module, kind)

    def outermost_place(self, name, module, kind):
        """Return the place of a call with this name outside of any module's call."""
        place = self._outermost.get((id(module), name, kind))
        if place is None or place.module() is not module:
            mark = self.marked(name, kind or _NAMES.kind_of(name), name, module)
            place = self._outermost[id(module), name, kind] = Place(None, name, module, mark)
        return place

    def marked(self, name, kind, path, module=None):
        """Return a new mark. Its payload is the known least work at this path, and the bytes of the parameters."""
        size = own_bytes(module) if module is not None else 0
        payload = {**self.work.get(path, {}), **({_NAMES.PARAMETERS: size} if size else {})}
        return self.marks.mark(name, kind, payload)

    def named(self, name, kind):
        mark = self._known.get(name)
        if mark is None:
            mark = self._known[name] = self.marked(name, kind, name)
        return mark

    def wrapped_call(self, plain):
        """Return Module.__call__ with a range around it."""
        local, of_call, of_outermost = self._local, self.of_call, self.of_outermost
        push, pop = self.marks.push, self.marks.pop
        compiling = self.torch.compiler.is_compiling

        def __call__(self, *args, **kwargs):  # noqa: N807
            if compiling():
                return plain(self, *args, **kwargs)
            try:
                stack = local.stack
            except AttributeError:
                stack = local.stack = []
            place = of_call(stack[-1], self) if stack else of_outermost(self, (*args, *kwargs.values()))
            push(place.mark)
            stack.append(place)
            try:
                return plain(self, *args, **kwargs)
            finally:
                stack.pop()
                pop()

        return __call__

    def wrapped(self, plain, name, kind):
        """Return a function with a range around it. `name` is a text, or a function of the first argument."""
        push, pop, compiling = self.marks.push, self.marks.pop, self.torch.compiler.is_compiling

        @functools.wraps(plain)
        def ranged(*args, **kwargs):
            if compiling():
                return plain(*args, **kwargs)
            push(self.named(f"{_NAMES.STEP}{name(args[0]) if callable(name) else name}", kind))
            try:
                return plain(*args, **kwargs)
            finally:
                pop()

        return ranged

    def outermost(self, plain, name, module=None):
        """Return a function that launches compiled code; outside of any module, with a range around it, as a step.

        `module` is the module whose method is compiled: the names of modules that it calls itself start below it.
        """
        local, push, pop, compiling = self._local, self.marks.push, self.marks.pop, self.torch.compiler.is_compiling
        recorded = isinstance(self.marks, Recorded)

        @functools.wraps(plain)
        def ranged(*args, **kwargs):
            if compiling():
                return plain(*args, **kwargs)
            if getattr(local, "stack", None) or getattr(local, "launching", False):
                with self.marks.apart() if recorded else contextlib.nullcontext():
                    return plain(*args, **kwargs)
            step = f"{_NAMES.STEP}{name}{shape_of(self.torch, (*args, *kwargs.values()))}"
            place = None if module is None else self.outermost_place(step, module, "compiled")
            push(place.mark if place else self.named(step, "compiled"))
            local.launching, local.stack = True, [place] if place else []
            try:
                return plain(*args, **kwargs)
            finally:
                local.launching, local.stack = False, []
                pop()

        return ranged

    def wrapped_compile(self, plain):
        """Return torch.compile with ranges around the functions that it compiles; modules have ranges already."""
        nn = self.torch.nn

        def ranged(given, made):
            if isinstance(given, nn.Module) or not callable(given) or isinstance(made, nn.Module):
                return made
            owner = getattr(given, "__self__", None)
            module = owner if isinstance(owner, nn.Module) else None
            name = class_of(module) if module is not None else getattr(given, "__name__", type(given).__name__)
            return self.outermost(made, name, module)

        @functools.wraps(plain)
        def compiled(model=None, *args, **kwargs):
            made = plain(model, *args, **kwargs)
            if model is None:  # used as a decorator, which gets the function later
                return lambda given: ranged(given, made(given))
            return ranged(model, made)

        return compiled

    def wrapped_backward(self, plain):
        """Return torch.autograd.backward with a range on the thread that launches: with one GPU, autograd's thread."""
        torch, push, pop = self.torch, self.marks.push, self.marks.pop
        here = self.wrapped(plain, "backward", "backward")
        mark = self.named(f"{_NAMES.STEP}backward", "backward")

        @functools.wraps(plain)
        def backward(tensors, *args, **kwargs):
            root = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
            node = getattr(root, "grad_fn", None)
            if node is None or not root.is_cuda or torch.cuda.device_count() != 1 or isinstance(self.marks, Recorded):
                return here(tensors, *args, **kwargs)

            def close(thread):
                if threading.get_ident() == thread:
                    pop()

            def begin(_):
                handle.remove()
                push(mark)
                thread = threading.get_ident()
                torch.autograd.Variable._execution_engine.queue_callback(lambda: close(thread))

            handle = node.register_prehook(begin)
            return plain(tensors, *args, **kwargs)

        return backward

    def measure(self, plain, ranged):
        """Return the ns that a range adds to the call of a module: least time of ROUNDS with it, less that without."""
        nn = self.torch.nn

        class Leaf(nn.Module):
            def forward(self):
                return None

        leaf, best = Leaf(), {}
        place = Place(None, "", leaf, self.marks.mark(_NAMES.CALIBRATION, "other", {}))
        place.inner[id(leaf)] = place
        self._local.stack = [place]
        try:
            for _ in range(ROUNDS):
                for call in (plain, ranged):
                    start = time.perf_counter_ns()
                    for _ in range(CALLS):
                        call(leaf)
                    took = (time.perf_counter_ns() - start) / CALLS
                    best[call] = min(best.get(call, took), took)
        finally:
            self._local.stack = []
        return best[ranged] - best[plain]


def install(torch, mode):
    """Put the ranges into the program's torch."""
    module, optimiser = torch.nn.Module, torch.optim.Optimizer
    used = _recorded() if mode == "dataflow" else marks(torch)
    ranges, plain = Ranges(torch, used, _NAMES.read_work(os.environ.get(WORK))), module.__call__
    ranged = ranges.wrapped_call(plain)
    module.__call__ = _measured_first(ranges, plain, ranged) if mode == "measure" else ranged
    torch.autograd.backward = ranges.wrapped_backward(torch.autograd.backward)
    torch.compile = ranges.wrapped_compile(torch.compile)
    graph = torch.cuda.CUDAGraph
    graph.replay = ranges.outermost(graph.replay, graph.__name__)
    hook = optimiser.profile_hook_step
    optimiser.profile_hook_step = staticmethod(
        lambda step: ranges.wrapped(hook(step), lambda own: type(own).__name__, "optimiser")
    )


def _measured_first(ranges, plain, ranged):
    """Return a Module.__call__ whose first call measures what a range costs, and then puts `ranged` in its place.

    torch.compile keeps the `__call__` that a module had when it was compiled, and so may call this one again and again.
    """
    compiling = ranges.torch.compiler.is_compiling

    def __call__(self, *args, **kwargs):  # noqa: N807
        if compiling():
            return plain(self, *args, **kwargs)
        if ranges.torch.nn.Module.__call__ is not __call__:
            return ranged(self, *args, **kwargs)
        ranges.torch.nn.Module.__call__ = ranged
        _write("cost", {"cost_ns": ranges.measure(plain, ranged), "with": type(ranges.marks).__name__})
        return ranged(self, *args, **kwargs)

    return __call__


def _write_rank():
    """Write the rank of this process to a file, if a launcher such as torchrun gave it one."""
    asked = {"process_rank": "RANK", "ranks": "WORLD_SIZE", "local_rank": "LOCAL_RANK"}
    texts = {name: os.environ.get(variable, "") for name, variable in asked.items()}
    known = {name: int(text) if text.isdecimal() else None for name, text in texts.items()}
    if known["process_rank"] is not None:
        _write("rank", {"pid": os.getpid(), **known})


def _write(what, content):
    """Write a JSON file of this process, whole or not at all. A failure must not disturb the program."""
    folder = os.environ.get("KERNEL_LEDGER_RANGES_OUT")
    if not folder:
        return
    path = os.path.join(folder, f"{what}-{os.getpid()}.json")
    try:
        with open(f"{path}.partial", "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(f"{path}.partial", path)
    except OSError:
        pass


# Dataflow -----------------------------------------------------------------------------------------------------------

MOST_STEPS = 12  # kinds of steps that are recorded
TIMES = 3  # each: its operations once, its work so often, as a first step may do more


class Recorded:
    """Takes the place of marks: records the operations of each kind of step once, and opens no ranges.

    Compiled code runs outside of the recorder's dispatch mode: inside it, torch would never compile that code.
    """

    def __init__(self, recorder, work, kernels):
        self._recorder, self._work, self.kernels, self._local = recorder, work, kernels, threading.local()
        self._seen, self._owner, self._apart = {}, None, None
        self.compiled = False

    def mark(self, name, kind, payload):
        return name, kind

    def push(self, mark):
        name, kind = mark
        depth = self._local.depth = getattr(self._local, "depth", 0) + 1
        if kind == "compiled":
            self.compiled = True
            if self._records():
                self._work.unseen()
            if self._records() and self._is_innermost():
                self._recorder.__exit__(None, None, None)
                self._apart = depth
        elif depth == 1 and self._owner is None and self._wants(name):
            self._recorder.keeps = name not in self._seen
            self._seen[name] = self._seen.get(name, 0) + 1
            self._owner = threading.get_ident()
            self._recorder.__enter__()
        if self._records():
            self._recorder.push(name)

    def _wants(self, name):
        return self._seen[name] < TIMES if name in self._seen else len(self._seen) < MOST_STEPS

    def _is_innermost(self):
        """Return whether our dispatch mode is the innermost; else leaving ours would end a mode of the program."""
        modes = sys.modules["torch.utils._python_dispatch"]
        return modes._get_current_dispatch_mode() is self._recorder

    def _records(self):
        return self._owner == threading.get_ident() and self._apart is None

    def pop(self):
        depth, self._local.depth = self._local.depth, self._local.depth - 1
        if self._records():
            self._recorder.pop()
            if depth == 1:
                self._recorder.__exit__(None, None, None)
                self._owner = None
        elif self._owner == threading.get_ident() and self._apart == depth:
            self._recorder.__enter__()
            self._apart = None

    @contextlib.contextmanager
    def apart(self):
        """Run compiled code that has no range of its own outside of the recorder's dispatch mode."""
        self.push(("", "compiled"))
        try:
            yield
        finally:
            self.pop()

    def write(self):
        rows = self.kernels.rows
        if self._seen or self.compiled or rows:
            found = {"rows": self._recorder.rows(), "compiled": self.compiled, "inductor": rows}
            _write("dataflow", found | {"work": self._work.found()})


def _recorded():
    """Return the harness' recorder, listened to by a counter of work, and the recorder of Inductor's kernels."""
    holds = _beside(os.path.join("analysis", "formats", "views.py")).holds
    work = _beside(os.path.join("harness", "instrument", "range_work.py")).WorkOfRanges(holds)
    found = Recorded(_beside(os.path.join("harness", "dataflow.py")).Recorder(work), work, _INDUCTOR.Kernels())
    watch(_INDUCTOR.MODULE, found.kernels.listen)
    atexit.register(found.write)
    return found
