"""What `make test` takes for granted of its workers: tests of one group run on one, so that they share what takes long."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


def test_tests_of_one_group_run_on_one_worker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, pathlib, time, pytest

        @pytest.mark.xdist_group("one")
        @pytest.mark.parametrize("number", range(6))
        def test_of_the_group(number):
            pathlib.Path(f"{number}.worker").write_text(os.environ["PYTEST_XDIST_WORKER"])
            time.sleep(0.02)  # else one worker is through with all before the other has begun
        """
    )
    done = pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=6)
    assert len({path.read_text() for path in Path(pytester.path).glob("*.worker")}) == 1
