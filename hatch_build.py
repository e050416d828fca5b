"""What hatchling packs: the tracked files of the folders that the installed command needs, and a README for PyPI.

The wheel holds them as `kernel_ledger/tree`: site-packages gets no package named `analysis` or `harness`.
"""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# What the command and the notebook run, and the committed numbers that the notebook shows without a GPU.
CARRIED = (
    "analysis",
    "harness",
    "kernels",
    "nsys_scripts",
    "reports/h200-gpt2-fp32/captures",
    "reports/h200-gpt2-ops",
    "reports/h200-softmax-bench",
    "reports/published.toml",
    "studies/__init__.py",
    "studies/bench",
    "studies/outputs.py",
)
SOURCES = ("hatch_build.py", "pyproject.toml", "CHANGELOG.md", "LICENSE", "README.md")  # beside these, in the sdist
SUFFIXES = {".c", ".css", ".cu", ".cuh", ".h", ".j2", ".js", ".json", ".py", ".sbatch", ".sh", ".toml", ".typed"}


def tracked(root: Path) -> list[str]:
    """Return the files to pack, as paths from the root; an unpacked sdist has no git, and holds no others."""
    folders = ("kernel_ledger", *CARRIED)
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", *folders], cwd=root, check=True, stdout=subprocess.PIPE, text=True
        )
        names = [name for name in listed.stdout.split("\0") if (root / name).is_file()]
    else:
        found = (path for folder in folders for path in (root / folder, *(root / folder).rglob("*")))
        paths = [path for path in found if path.is_file()]
        names = [path.relative_to(root).as_posix() for path in paths]
    return sorted(name for name in names if name.startswith("reports/") or PurePosixPath(name).suffix in SUFFIXES)


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
            self.beside = Path(tempfile.mkdtemp())
            bill = self.beside / "kernel-ledger.cdx.json"
            bill.write_text(json.dumps(bill_of_materials(self.metadata), indent=1) + "\n", encoding="utf-8")
            build_data["sbom_files"].append(str(bill))
        build_data["force_include"].update({str(Path(self.root, name)): place for name, place in files.items()})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the bill of materials, which the wheel holds now."""
        if hasattr(self, "beside"):
            shutil.rmtree(self.beside)


def bill_of_materials(metadata: Any) -> dict[str, Any]:
    """Return the CycloneDX document of the wheel: it holds our files alone, and requires these packages."""
    name, version = metadata.core.name, metadata.version
    ours = f"pkg:pypi/{name}@{version}"
    wanted = {f"pkg:pypi/{one.name}": one for one in metadata.core.dependencies_complex.values()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": ours, "name": name, "version": version, "purl": ours,
                "licenses": [{"license": {"id": metadata.core.license_expression}}],
            }
        },
        "components": [
            {
                "type": "library", "bom-ref": purl, "name": one.name, "purl": purl, "isExternal": True,
                "versionRange": f"vers:pypi/{str(one.specifier).replace(',', '|')}",
            }
            for purl, one in wanted.items()
        ],
        "dependencies": [{"ref": ours, "dependsOn": list(wanted)}],
        "compositions": [{"aggregate": "complete", "assemblies": [ours]}],
    }  # fmt: skip


class Readme(MetadataHookInterface):
    """Makes the links of README.md absolute: PyPI shows it beside no other file."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Point each link at the tag of this version."""
        home = metadata["urls"]["Repository"]

        def absolute(match: re.Match[str]) -> str:
            kind = "raw" if match["picture"] else "blob"
            return f"{match['picture']}[{match['text']}]({home}/{kind}/v{metadata['version']}/{match['to']})"

        def drawn(match: re.Match[str]) -> str:
            return f'{match[1]}="{home}/raw/v{metadata["version"]}/{match[2]}"'

        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r'\b(src|srcset)="(?!https?:)([^"]+)"', drawn, text)
        link = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?!https?:|#)(?P<to>[^)]+)\)")
        metadata["readme"] = {"content-type": "text/markdown", "text": link.sub(absolute, text)}
