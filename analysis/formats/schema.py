"""Print the JSON Schema of report.json or another form: `python -m analysis.formats.schema [agent|comparison]`."""

import argparse
import json

import msgspec

from analysis.formats import agent, comparison, report

FORMS = {
    "report": (report.Report, f"report.json, version {report.VERSION}"),
    "comparison": (comparison.Comparison, f"comparison.json, version {comparison.COMPARISON.version}"),
    "agent": (agent.AgentReport, f"report.py --for-agent, version {agent.VERSION}"),
}


def render(name: str = "report") -> str:
    """Return the text of analysis/NAME.schema.json, which is generated from the Structs of that form."""
    struct, title = FORMS[name]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(head | msgspec.json.schema(struct), indent=1, ensure_ascii=False)


def main() -> None:
    """Print the schema of a form."""
    parser = argparse.ArgumentParser(prog="python -m analysis.formats.schema", description=__doc__)
    parser.add_argument("form", nargs="?", choices=FORMS, default="report")
    print(render(parser.parse_args().form))


if __name__ == "__main__":
    main()
