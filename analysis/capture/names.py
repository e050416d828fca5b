"""Names that programs gave to their ranges, as they may be shown."""

from __future__ import annotations

import ast
import re

from analysis.formats.ranges import without_domain

# A folder that names a user: of a path below it only the last name is kept.
_HOME = re.compile(r"(?:[A-Za-z]:)?[\\/](?:home|Users|root)[\\/](?:[^\s\"'<>|:;,()\\/]+[\\/])*([^\s\"'<>|:;,()\\/]*)")
_PAYLOADS = ("{'traceMarker':", "{'mod':")  # as pyprof and DLProf begin them
_LONGEST = 100_000  # a literal that is longer is not looked into


def range_name(text: str) -> str:
    """The name of a range without our domain and folders of a user; of a payload in its place (pyprof, DLProf) what
    it says.

    `{'traceMarker': ['net.py:41', …], 'funcStack': '/main/Net::forward/Linear::reset'}` is `Linear::reset @ net.py:41`,
    `{'mod': 'Tensor', 'op': 'uniform_', …}` is `Tensor.uniform_`.
    """
    if text.startswith(_PAYLOADS):
        text = _of_payload(text) or text
    text = without_domain(text)
    return _HOME.sub(r"\1", text) if "/" in text or "\\" in text else text


def _of_payload(text: str) -> str:
    try:
        payload = ast.literal_eval(text) if len(text) <= _LONGEST else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(payload, dict):
        return ""
    if isinstance(payload.get("op"), str):
        return ".".join(str(part) for part in (payload.get("mod"), payload["op"]) if part)
    marker = payload.get("traceMarker")
    place = str(marker[0]) if isinstance(marker, list) and marker else ""
    function = str(payload.get("funcStack") or "").rpartition("/")[2]
    return " @ ".join(part for part in (function, re.split(r"[\\/]", place)[-1]) if part)
