"""What hatchling packs: the tracked files of the folders that the installed command needs, and a README for PyPI.

The wheel holds them as `kernel_ledger/tree`: site-packages gets no package named `analysis` or `harness`.
"""

import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

CARRIED = ("analysis", "harness", "nsys_scripts")
SOURCES = ("hatch_build.py", "pyproject.toml", "CHANGELOG.md", "LICENSE", "README.md")  # beside these, in the sdist
SUFFIXES = {".c", ".css", ".j2", ".js", ".json", ".py", ".sh", ".toml", ".typed"}


def tracked(root: Path) -> list[str]:
    """Return the files to pack, as paths from the root; an unpacked sdist has no git, and holds no others."""
    folders = ("kernel_ledger", *CARRIED)
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", *folders], cwd=root, check=True, stdout=subprocess.PIPE, text=True
        )
        names = [name for name in listed.stdout.split("\0") if (root / name).is_file()]
    else:
        paths = (path for folder in folders for path in (root / folder).rglob("*") if path.is_file())
        names = [path.relative_to(root).as_posix() for path in paths]
    return sorted(name for name in names if PurePosixPath(name).suffix in SUFFIXES)


class Files(BuildHookInterface):
    """Packs the files; an editable install runs from the checkout and needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name each file with its place in the archive."""
        if version == "editable":
            return
        names = tracked(Path(self.root))
        if self.target_name == "sdist":
            files = {name: name for name in (*SOURCES, *names)}
        else:
            files = {
                name: name if name.startswith("kernel_ledger/") else f"kernel_ledger/tree/{name}" for name in names
            }
        build_data["force_include"].update({str(Path(self.root, name)): place for name, place in files.items()})


class Readme(MetadataHookInterface):
    """Makes the links of README.md absolute: PyPI shows it beside no other file."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Point each link at the tag of this version."""
        home = metadata["urls"]["Repository"]

        def absolute(match: re.Match[str]) -> str:
            kind = "raw" if match["picture"] else "blob"
            return f"{match['picture']}[{match['text']}]({home}/{kind}/v{metadata['version']}/{match['to']})"

        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        link = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?!https?:|#)(?P<to>[^)]+)\)")
        metadata["readme"] = {"content-type": "text/markdown", "text": link.sub(absolute, text)}
