"""Build the package `kernel_ledger`: it carries the folders that its commands need, as `kernel_ledger/tree`.

The folders keep their names there, and site-packages gets none of them: `kernels` belongs to another project on PyPI.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CARRIED = ("analysis", "harness", "nsys_scripts", "studies")
FILES = ("kernels/goals.toml",)  # of folders that stay behind
FOLDERS = [
    folder
    for name in CARRIED
    for folder in sorted([Path(name), *Path(name).rglob("*")])
    if folder.is_dir() and "__pycache__" not in folder.parts
]
TREE = {".".join(("kernel_ledger", "tree", *folder.parts)): str(folder) for folder in FOLDERS}


class Build(build_py):
    """Copies FILES, too; an editable install runs from the checkout and needs no copy."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        for name in () if self.editable_mode else FILES:
            to = Path(self.build_lib, "kernel_ledger", "tree", name)
            self.mkpath(str(to.parent))
            self.copy_file(name, str(to))


setup(packages=["kernel_ledger", *TREE], package_dir=TREE, package_data={"": ["*"]}, cmdclass={"build_py": Build})
