"""Print the JSON Schema of report.json: `python -m analysis.formats.schema > analysis/report.schema.json`."""

from __future__ import annotations

import json

import msgspec

from analysis.formats.report import VERSION, Report


def render() -> str:
    """Return the text of analysis/report.schema.json, which is generated from the Structs of a report."""
    schema = msgspec.json.schema(Report)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"report.json, version {VERSION}"}
    return json.dumps(head | schema, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    print(render())
