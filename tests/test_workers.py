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


def test_tests_that_share_a_fixture_of_their_module_are_a_group(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(
        test_some="""
        import pytest

        @pytest.fixture(scope="module")
        def made(): return 1

        @pytest.fixture
        def more(made): return made + 1

        def test_direct(made): pass
        def test_through_another(more): pass
        def test_alone(tmp_path): pass
        @pytest.mark.xdist_group("other")
        def test_elsewhere(made): pass
        """
    )
    items, _ = pytester.inline_genitems()
    groups = {item.name: [mark.args[0] for mark in item.iter_markers("xdist_group")] for item in items}
    assert groups == {
        "test_direct": ["test_some"], "test_through_another": ["test_some"], "test_alone": [], "test_elsewhere": ["other"],
    }  # fmt: skip
