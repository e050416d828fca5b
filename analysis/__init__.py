import sys

if sys.argv[:1] == ["-m"]:  # Python is about to run `python -m analysis.…`
    from analysis.formats.console import name_lacking_packages

    name_lacking_packages()
