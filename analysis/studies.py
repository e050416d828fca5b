"""Find the tables that a study adds to the report on a capture: those of the study that wrote one of its files."""

from importlib import import_module
from importlib.util import find_spec

from analysis.capture.model import Capture
from analysis.formats.files import captured
from analysis.formats.report import Missing, Reason
from analysis.tables.declare import Declaration, Part, arrange, find


def declarations(capture: Capture) -> list[Declaration]:
    """Return what the studies declare that `OurFile.studies` names for a file of the capture.

    A capture without such a file imports no study. The installed package has none of these studies: the report says so.
    """
    kinds = captured()
    named = {file.name: kinds[file.kind].studies for file in capture.files if file.kind in kinds}
    packages = sorted({package for packages in named.values() for package in packages})
    if packages and not _is_here(packages[0]):
        lacking = Missing(
            Reason.UNREAD,
            f"the tables of {', '.join(name for name, packages in named.items() if packages)}",
            "a study of the repository reads such a file, and the installed package does not hold it",
            "run `python analysis/report.py` in a clone of the repository",
        )
        return [Part(name="missing studies", build=lambda _: lacking, kind="missing")]
    order = import_module(packages[0].partition(".")[0]).TABLES if packages else ()
    return arrange(find(*map(import_module, packages)), order)


def _is_here(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
