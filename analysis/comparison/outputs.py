"""Write what a gate says as JUnit XML and as SARIF."""

import json
from typing import Any
from xml.etree import ElementTree

from analysis.comparison.gate import FAIL, PASS, UNSURE
from analysis.formats.comparison import Comparison

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def junit(compared: Comparison) -> str:
    """Return JUnit XML: a test case for each rule; one that is unsure is an error, not a failure."""
    checked = compared.gate
    suite = ElementTree.Element("testsuite", name="kernel-ledger gate", tests=str(len(checked)))
    for name, status in (("failures", FAIL), ("errors", UNSURE)):
        suite.set(name, str(sum(one.status == status for one in checked)))
    for one in checked:
        case = ElementTree.SubElement(suite, "testcase", name=one.rule, classname="gate")
        if one.status != PASS:
            kind = "failure" if one.status == FAIL else "error"
            ElementTree.SubElement(case, kind, message=one.sentence, type=one.status).text = "\n".join(one.rows)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def sarif(compared: Comparison) -> str:
    """Return SARIF 2.1.0: a result for each rule that does not pass, with its source line where that is known."""
    results = []
    for one in compared.gate:
        if one.status == PASS:
            continue
        result: dict[str, Any] = {
            "ruleId": one.rule,
            "level": "error" if one.status == FAIL else "warning",
            "message": {"text": "\n".join([one.sentence, *one.rows])},
        }
        if one.file:
            place = {"artifactLocation": {"uri": one.file}, "region": {"startLine": max(one.line, 1)}}
            result["locations"] = [{"physicalLocation": place}]
        results.append(result)
    rules = [{"id": one.rule} for one in compared.gate]
    run = {"tool": {"driver": {"name": "kernel-ledger", "rules": rules}}, "results": results}
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False) + "\n"
