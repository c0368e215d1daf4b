"""The part of the plugin that every pytest run of the machine loads: options, marks and fixtures.

It is short and imports little, because it is often loaded without compiled files. Options are declared once something
mentions them, or once a test uses a stack. The other hooks are registered with the code that they need.

PYTEST_DONT_REWRITE: otherwise pytest would compile it in each run that writes no compiled files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import hooks

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.session.state import Session
    from pytest_fsstack.stack.build import Built
    from pytest_fsstack.workloads.data.archive import Corpus
    from pytest_fsstack.workloads.data.scale import Sizes

MARKERS = (
    "fsstack(*stacks, baseline=None, below=None, on=None, keep=()): run the test on each of these stacks, such as "
    "'luks | ext4' or 'name = luks | ext4'; the others are compared with the baseline (by default the first); "
    "below='ext4' goes between where a stack does not fit the device; on='recorded' goes below each stack without "
    "such a layer, also those of --fsstack-stacks; keep=('name',) names stacks that stay beside those",
    "fsstack_budget(overhead=0.30, metric='seconds'): fail where a stack costs more than this over the baseline, or "
    "with limit=... more than this; a dictionary gives one number for each pattern of stack names",
    "fsstack_repeat(times): run a step that only reads this many times in each round, each from cold, and take the "
    "median; with 'auto', as often as it pays, by its cost and its noise",
    "fsstack_rounds(number): run the class or test in this many rounds, unless --fsstack-rounds or a budget needs more",
    "fsstack_sizes(smoke, small, paper): the sizes of a scenario at each --fsstack-scale, for its fixture sizes",
    "fsstack_table(name, **options): the shape in which the chain's results are published, such as 'times' or 'matrix'",
    "fsstack_remark(text): what a reader of the chain's results should know; reports show it among their notes",
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    config: Any = pluginmanager.get_plugin("pytestconfig")
    config.stash[hooks.PARSER] = parser
    if _may_mention_options(config):
        from pytest_fsstack.plugin import command_line

        command_line.declare(config)


def _may_mention_options(config: pytest.Config) -> bool:
    """Whether the command line, the environment, the ini or the controller of a worker may set an option."""
    words = [str(word) for word in config.invocation_params.args]
    texts = [*words, *vars(config.option), os.environ.get("PYTEST_ADDOPTS", "")]
    if config.inipath is not None:
        texts.append(config.inipath.read_text(encoding="utf-8", errors="replace"))
    if any("fsstack-" in text or "fsstack_" in text or ".fio" in text for text in texts):
        return True
    return "_ARGCOMPLETE" in os.environ or any(map(_may_ask_for_help, words))


def _may_ask_for_help(word: str) -> bool:
    return word.startswith("@") or word == "--help" or (word[:1] == "-" != word[1:2] and "h" in word)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fsstack" in metafunc.fixturenames:
        from pytest_fsstack.plugin import running

        running.generate_tests(metafunc)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    # Workers of pytest-xdist may use stacks even if their controller mentions no option.
    node.workerinput[hooks.CONTROLLER] = node.gateway.newchannel()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if mistake := getattr(node, "workeroutput", {}).get(hooks.MISTAKE):
        raise pytest.UsageError(mistake)


def _session(request: pytest.FixtureRequest) -> Session:
    from pytest_fsstack.plugin import running

    return running.session_of(request.config)


# -- fixtures ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="class")
def fsstack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Build the stack under test: `path`, `device`, `spec`, `usage()`, `sync()`, `remount()`."""
    session = _session(request)
    if not hasattr(request, "param"):
        pytest.fail(session.parameters.why_without_stack(), pytrace=False)
    with session.built(request.param, tmp_path_factory.getbasetemp) as built:
        yield built


@pytest.fixture
def timed(request: pytest.FixtureRequest, fsstack: Built) -> Iterator[Timed]:
    """Time a section of a step: ``with timed(bytes=...): timed.run("tar", ...)``."""
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.rounds.runner import CHECKING, METRICS, REPEATED, ROUND, SAMPLE

    # A chain runs in rounds if one of its tests is known to measure before it runs.
    if ROUND not in request.node.stash:
        pytest.fail("timed is not an argument of the test, so nothing would be measured: make it one", pytrace=False)
    block = Timed(fsstack, request.node.stash.get(REPEATED, ""), request.node.stash.get(METRICS, {}))
    yield block
    request.node.stash[CHECKING] += block.checking
    if block.sample is not None:
        request.node.stash[SAMPLE] = block.sample


@pytest.fixture
def fsstack_seed(request: pytest.FixtureRequest) -> int:
    """Return a seed for random input. It changes with each round, and is the same for all stacks. --fsstack-seed
    repeats it.
    """
    from pytest_fsstack.rounds.runner import ROUND, seed_of_round

    return seed_of_round(_session(request).settings.seed, request.node.stash.get(ROUND, 0))


@pytest.fixture(scope="session")
def corpus(request: pytest.FixtureRequest) -> Corpus:
    """Return the files for workloads: generated ones, or those of ``--fsstack-corpus``."""
    return _session(request).corpus


@pytest.fixture(scope="class")
def sizes(request: pytest.FixtureRequest) -> Sizes:
    """Return the sizes that the marker ``fsstack_sizes`` gives for ``--fsstack-scale``."""
    from pytest_fsstack.session.selecting import sizes_or_failure

    return sizes_or_failure(request.node, _session(request).settings.scale)


@pytest.fixture(scope="session")
def payloads(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Return a function that makes incompressible files: ``payloads(size, seed=1)``, with the size in bytes."""
    return _session(request).payload


@pytest.fixture(scope="session")
def payload(payloads: Callable[..., Path]) -> Path:
    """Return an incompressible file of 100 MiB."""
    return payloads(100 << 20)
