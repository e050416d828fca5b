"""Build range names and open ranges. No other module does either.

A component of the model is a method marked `@component("softmax")`. The mark stores the name on the function and
returns the function itself, so an untraced model pays nothing: no wrapper, no branch. `attach` gives each
instance of one model a class of its own with wrapped methods. `detach` gives the original class back.

    model = GPT2(config)
    attach(model, NvtxTracer())      # every call now opens gpt2 > prefill > h.0 > attn > softmax …
    detach(model)                    # and now none does

One range is one component. Its name has no `/`, because ncu's filters read `/` as syntax; readers of the stack join
the names with `/`. Names are templates over the instance: `"h.{self.index}"`.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from analysis.formats.errors import UsageError
from analysis.formats.ranges import KINDS, is_step, kind_of
from analysis.formats.run import CPU_RANGES
from harness.payload import payload_of

_MARK = "_component_name"
_DETAIL = "_component_is_detail"
_TRACED = "_traced_class"
F = TypeVar("F", bound=Callable[..., Any])


def component(name: str, *, detail: bool = False) -> Callable[[F], F]:
    """Mark a method as a component called `name`, a format template over `self`, and return the method itself.

    A `detail` is a part of a component. Only tracers with `detail = True` open its range; captures do not.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, name)
        setattr(function, _DETAIL, detail)
        return function

    return mark


class Tracer(Protocol):
    """Opens and closes nested ranges of the calling thread. If it is not `enabled`, `attach` wraps nothing."""

    @property
    def enabled(self) -> bool: ...

    def push(self, name: str) -> None: ...

    def pop(self) -> None: ...


class Work(NamedTuple):
    """The minimum work of a range: the bytes that it must move, and its floating-point operations."""

    minimum_bytes: int
    flops: int


def work_by_range(rows: Iterable[tuple[str, int | None, int | None]]) -> dict[str, Work]:
    """Return the work of each range and of those around it, from (path, minimum bytes, FLOPs) of innermost ranges."""
    found: dict[str, Work] = {}
    for path, moved, flops in rows:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            around = "/".join(parts[:depth])
            before = found.get(around, Work(0, 0))
            found[around] = Work(before.minimum_bytes + (moved or 0), before.flops + (flops or 0))
    return found


class _Place:
    """A range at its place on the stack, with its attributes and the ranges below it."""

    __slots__ = ("attributes", "inner", "parent", "path")

    def __init__(self, parent: _Place | None, path: str, attributes: Any) -> None:
        self.parent, self.path, self.attributes = parent, path, attributes
        self.inner: dict[str, _Place] = {}


class NvtxTracer:
    """Opens ranges in NVTX's default domain, which nsys prints as `:name` and ncu as `<default domain>:name`.

    It makes the event attributes (registered string included) once per name: `Domain.push_range` with ready attributes
    is the cheapest call of the Python package. With no profiler attached, the package returns a dummy domain whose push
    and pop do nothing. The tracer is then not enabled and costs nothing.

    With `work` (path -> Work), each range whose path it names carries that work as payload. Only one thread may then
    open ranges.
    """

    def __init__(self, work: Mapping[str, Work] | None = None) -> None:
        import nvtx

        self._domain = nvtx.get_domain(None)
        self.enabled = isinstance(self._domain, nvtx.Domain)
        self._attributes: dict[str, Any] = {}
        self.pop: Callable[[], None] = self._domain.pop_range
        self._push: Callable[[Any], None] = self._domain.push_range
        if work:
            self._work, self._place = work, _Place(None, "", None)
            self.push, self._plain_pop, self.pop = self._push_with_work, self.pop, self._pop_with_work  # type: ignore[method-assign]

    def _made(self, name: str, payload: Any = None) -> Any:
        kind = "step" if is_step(name) else kind_of(name)
        return self._domain.get_event_attributes(message=name, color=KINDS[kind][0], category=kind, payload=payload)

    def push(self, name: str) -> None:
        attributes = self._attributes.get(name)
        if attributes is None:
            attributes = self._attributes[name] = self._made(name)
        self._push(attributes)

    def _push_with_work(self, name: str) -> None:
        above = self._place
        place = above.inner.get(name)
        if place is None:
            path = f"{above.path}/{name}" if above.path else name
            work = self._work.get(path)
            place = _Place(above, path, self._made(name, payload_of(work._asdict()) if work else None))
            above.inner[name] = place
        self._place = place
        self._push(place.attributes)

    def _pop_with_work(self) -> None:
        assert self._place.parent is not None
        self._place = self._place.parent
        self._plain_pop()


class RangeInstance(NamedTuple):
    """One closed range; times in ns of `time.perf_counter_ns`."""

    start_ns: int
    end_ns: int
    path: str
    thread: int


class RecordingTracer:
    """Records every range with its CPU times, for machines without a GPU or without nsys."""

    enabled = True

    def __init__(self) -> None:
        self.instances: list[RangeInstance] = []
        self._threads: dict[int, int] = {}
        self._local = threading.local()

    def _stack(self) -> list[tuple[str, int]]:
        stack: list[tuple[str, int]] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
            self._threads.setdefault(threading.get_ident(), len(self._threads))
        return stack

    def push(self, name: str) -> None:
        stack = self._stack()
        path = f"{stack[-1][0]}/{name}" if stack else name
        stack.append((path, time.perf_counter_ns()))

    def pop(self) -> None:
        end_ns = time.perf_counter_ns()
        path, start_ns = self._stack().pop()
        self.instances.append(RangeInstance(start_ns, end_ns, path, self._threads[threading.get_ident()]))

    def write_csv(self, path: Path) -> None:
        """Write `start_ns,end_ns,path,thread`, outer ranges before inner ones, times from the first start."""
        origin_ns = min((instance.start_ns for instance in self.instances), default=0)
        rows = sorted(self.instances, key=lambda r: (r.thread, r.start_ns, -r.end_ns, r.path.count("/")))
        text = CPU_RANGES.text((r.start_ns - origin_ns, r.end_ns - origin_ns, r.path, r.thread) for r in rows)
        path.write_text(text, encoding="utf-8")


def _check_name(name: str) -> str:
    if not name or "/" in name:
        raise UsageError(f"The range name {name!r} is empty or holds a `/`: name one component per range.")
    return name


def _wrap(function: Callable[..., Any], name: str, tracer: Tracer) -> Callable[..., Any]:
    push, pop = tracer.push, tracer.pop

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        push(name)
        try:
            return function(*args, **kwargs)
        finally:
            pop()

    return traced


def _marked(instance: object) -> Iterator[tuple[str, str, bool]]:
    """Yield (attribute, template, is a detail) of each marked method. The most derived definition decides."""
    seen: set[str] = set()
    for owner in type(instance).__mro__:
        for attribute, value in vars(owner).items():
            if attribute not in seen:
                seen.add(attribute)
                template = getattr(value, _MARK, None)
                if isinstance(template, str):
                    yield attribute, template, getattr(value, _DETAIL, False)


def _instances(model: Any) -> Iterator[Any]:
    """Yield the model and its submodules if it is a torch module, else the object itself."""
    modules = getattr(model, "modules", None)
    yield from modules() if callable(modules) else (model,)


def wrap_components(
    model: Any, wrap: Callable[[Callable[..., Any], str], Callable[..., Any]], *, details: bool = True
) -> None:
    """Replace each marked method of `model` and its submodules by `wrap(function, range name)`, until `detach`.

    `function` is the plain function of the class, so it takes the instance as its first argument.
    """
    detach(model)
    for instance in _instances(model):
        own = type(instance)
        wrapped = {
            attribute: wrap(getattr(own, attribute), _check_name(template.format(self=instance)))
            for attribute, template, detail in _marked(instance)
            if details or not detail
        }
        if wrapped:
            # Make a class for the instance instead of setting attributes on it. An attribute with a method's name would
            # make CPython look that method up more slowly on every instance of the class, permanently.
            names = {"__module__": own.__module__, "__qualname__": own.__qualname__, _TRACED: own}
            instance.__class__ = type(own.__name__, (own,), names | wrapped)


def attach(model: Any, tracer: Tracer) -> None:
    """Open a range around each call of a marked method of `model` and its submodules; replace an earlier tracer."""
    if tracer.enabled:
        wrap_components(model, functools.partial(_wrap, tracer=tracer), details=getattr(tracer, "detail", False))
    else:
        detach(model)


def detach(model: Any) -> None:
    """Give each instance its original class back. This does nothing to an untraced model."""
    for instance in _instances(model):
        instance.__class__ = getattr(type(instance), _TRACED, type(instance))


@contextmanager
def span(tracer: Tracer | None, name: str) -> Iterator[None]:
    """Open one ad-hoc range around a block; `None` traces nothing. In a hot loop, mark a component instead."""
    if tracer is None:
        yield
        return
    tracer.push(_check_name(name))
    try:
        yield
    finally:
        tracer.pop()
