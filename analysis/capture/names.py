"""Make the names of a program's ranges fit to be shown: without the names of users."""

import ast
import re

from analysis.formats.ranges import without_domain

# A path below the folder of a user; only its last name is kept.
_HOME = re.compile(r"(?:[A-Za-z]:)?[\\/](?:home|Users|root)[\\/](?:[^\s\"'<>|:;,()\\/]+[\\/])*([^\s\"'<>|:;,()\\/]*)")
_PAYLOADS = ("{'traceMarker':", "{'mod':")  # how payloads of pyprof and DLProf begin
_LONGEST = 100_000  # letters; a longer payload is not parsed


def range_name(text: str) -> str:
    """Return the name of a range without our domain and without folders of a user.

    pyprof and DLProf write a payload instead of a name. It becomes a name:
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
