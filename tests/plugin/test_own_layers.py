"""The example of docs/own-layers.md is a conftest that works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "own-layers.md"


def test_the_example_brings_its_layers(pytester: pytest.Pytester) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    pytester.makeconftest(code)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.fsstack("minix", "ext4 | mirror(mount='-o allow_other')")
        def test_it(fsstack):
            pass
        """
    )
    result = pytester.runpytest_subprocess("--fsstack-doctor", "-p", "no:cacheprovider")
    rows = [line.split()[1:3] for line in result.outlines if line.startswith("stack ")]
    assert [name for name, _ in rows] == ["minix", "ext4+mirror-o.allow_other"]
    assert {runs for _, runs in rows} <= {"yes", "no"}


def test_a_conftest_beside_the_tests_brings_layers_for_them(pytester: pytest.Pytester) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    beside = pytester.mkpydir("beside")
    (beside / "conftest.py").write_text(code)
    (beside / "test_it.py").write_text(
        "import pytest\n@pytest.mark.fsstack('ext4 | mirror')\ndef test_it(fsstack):\n    pass\n"
    )
    # A session that is already there when the conftest is loaded.
    result = pytester.runpytest_subprocess("--fsstack-rounds=1", "--collect-only", "-q", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["beside/test_it.py::test_it?ext4+mirror?"])


@pytest.mark.parametrize(
    ("hook", "content", "option"),
    [
        ("layers", "['mirror']", "--fsstack-rounds=1"),
        ("layers", "3", "--fsstack-rounds=1"),
        ("reports", "['html']", "--fsstack-rounds=1"),
        ("tables", "None, 3", "--fsstack-rounds=1"),
        ("workloads", "['tar']", "--fsstack-doctor=all"),
    ],
)
def test_a_hook_that_returns_something_else_is_named(
    pytester: pytest.Pytester, hook: str, content: str, option: str
) -> None:
    pytester.makeconftest(f"def pytest_fsstack_{hook}():\n    return {content}\n")
    pytester.makepyfile("import pytest\n\n@pytest.mark.fsstack('ext4')\ndef test_it(fsstack, timed):\n    pass\n")
    result = pytester.runpytest_subprocess(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: pytest_fsstack_{hook} *"])


def test_every_helper_that_the_page_names_is_public() -> None:
    import pytest_fsstack
    from pytest_fsstack.stack.places import Secret

    helpers = re.findall(r"^- `([\w.]+)\(", PAGE.read_text(), re.MULTILINE)
    assert {"context.machine.run", "context.mounted", "served"} <= set(helpers)
    owners = {
        "": pytest_fsstack.__all__,
        "context": dir(pytest_fsstack.BuildContext),
        "context.machine": dir(pytest_fsstack.Machine),
        "context.secret": dir(Secret),
    }
    for owner, _, name in (helper.rpartition(".") for helper in helpers):
        assert name in owners[owner]
