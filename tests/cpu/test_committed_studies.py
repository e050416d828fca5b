"""The committed reports of studies are built again, as test_committed_runs.py builds those of programs."""

import pytest

from tests.cpu.test_committed_runs import OF_STUDIES, ROOT, build_again

pytestmark = [pytest.mark.slow, pytest.mark.studies]


@pytest.mark.parametrize("name", sorted(OF_STUDIES))
def test_a_committed_report_of_a_study_is_built_again(name: str) -> None:
    build_again(ROOT / "reports" / name)
