"""What pytest sees: options, markers, fixtures and hooks. Everything heavy is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_fsstack.corpus import Corpus
    from pytest_fsstack.measure import Timed
    from pytest_fsstack.scale import Sizes
    from pytest_fsstack.session import Session
    from pytest_fsstack.stack import Built

MARKERS = (
    "fsstack(*stacks, baseline=None, below=None): run the test on each of these stacks, such as 'luks | ext4' or "
    "'name = luks | ext4'; the others are compared with the baseline (by default the first); below='ext4' goes between "
    "where a stack does not fit the device",
    "fsstack_budget(overhead=0.30, metric='seconds'): fail where a stack costs more than this over the baseline, or "
    "with limit=... more than this; a dictionary gives one number for each pattern of stack names",
    "fsstack_sizes(smoke, small, paper): the sizes of a scenario at each --fsstack-scale, for its fixture sizes",
    "fsstack_table(name, **options): the shape in which the chain's results are published, such as 'times' or 'matrix'",
    "fsstack_remark(text): what a reader of the chain's results should know; reports show it among their notes",
)


#: Where the plugin's state is, once a session has any.
KEY: pytest.StashKey[Session] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_fsstack import hooks

    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if options.any_given(config):
        # A mistake on the command line is told before anything is collected.
        session_of(config)


def pytest_fsstack_layers() -> list[Any]:
    from pytest_fsstack.layers import BUILT_IN

    return list(BUILT_IN)


def pytest_fsstack_workloads() -> dict[str, Any]:
    from pytest_fsstack.workloads import BUILT_IN

    return dict(BUILT_IN)


def pytest_fsstack_reports() -> dict[str, Any]:
    from pytest_fsstack.report import BUILT_IN

    return dict(BUILT_IN)


def pytest_fsstack_tables() -> dict[str, Any]:
    from pytest_fsstack.report.published import SHAPES

    return dict(SHAPES)


def session_of(config: pytest.Config) -> Session:
    """The plugin's state, made when it is first needed."""
    if KEY not in config.stash:
        from pytest_fsstack.session import Session

        config.stash[KEY] = Session.of(config)
    return config.stash[KEY]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if config.getoption("fsstack_cleanup"):
        from pytest_fsstack.maintenance import cleanup

        return cleanup(config)
    if config.getoption("fsstack_doctor"):
        from pytest_fsstack.maintenance import doctor

        return doctor(config)
    if options.value(config, "kernel") and not (hasattr(config, "workerinput") or config.getoption("collectonly")):
        from pytest_fsstack.hosts import controller

        # Before pytest-xdist reads its options, which this sets.
        config.pluginmanager.register(controller.start(config, session_of(config)), "fsstack-kernels")
    return None


def pytest_sessionstart(session: pytest.Session) -> None:
    if KEY in session.config.stash and not session.config.getoption("collectonly"):
        session.config.stash[KEY].set_up_machine()


# -- collection --------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fsstack" in metafunc.fixturenames:
        arms = session_of(metafunc.config).arms(metafunc.definition)
        metafunc.parametrize("fsstack", [arm.parameter for arm in arms], indirect=True, scope="class")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    # Before -k and the like take items away: a selected test may stand on tests that are not selected.
    collected = list(items) if KEY in config.stash else []
    yield
    if KEY in config.stash:
        config.stash[KEY].plan(collected, items)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return config.stash[KEY].header() if KEY in config.stash else []


# -- fixtures ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="class")
def fsstack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The stack under test, built afresh: `path`, `device`, `spec`, `usage()`, `sync()`, `remount()`."""
    with session_of(request.config).built(request.param, tmp_path_factory.getbasetemp) as built:
        yield built


@pytest.fixture
def timed(request: pytest.FixtureRequest, fsstack: Built) -> Iterator[Timed]:
    """The timed section of a step: ``with timed(bytes=...): timed.run("tar", ...)``."""
    from pytest_fsstack.measure import Timed
    from pytest_fsstack.rounds import SAMPLE

    block = Timed(fsstack)
    yield block
    if block.sample is not None:
        request.node.stash[SAMPLE] = block.sample


@pytest.fixture(scope="session")
def corpus(request: pytest.FixtureRequest) -> Corpus:
    """The files that workloads use: generated, or those of ``--fsstack-corpus``."""
    return session_of(request.config).corpus


@pytest.fixture(scope="class")
def sizes(request: pytest.FixtureRequest) -> Sizes:
    """The sizes of the scenario, as its marker ``fsstack_sizes`` has them for ``--fsstack-scale``."""
    try:
        return session_of(request.config).sizes(request.node)
    except ValueError as error:
        pytest.fail(f"{request.node.nodeid}: {error}", pytrace=False)


@pytest.fixture(scope="session")
def payloads(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Gives files that cannot be compressed: ``payloads(size, seed=1)``, in bytes; another seed, other contents."""
    return session_of(request.config).payload


@pytest.fixture(scope="session")
def payload(payloads: Callable[..., Path]) -> Path:
    """A file of 100 MiB that cannot be compressed."""
    return payloads(100 << 20)


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if KEY in config.stash:
        config.stash[KEY].summarize(terminalreporter)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if KEY in session.config.stash:
        session.config.stash[KEY].finish(session)


def pytest_unconfigure(config: pytest.Config) -> None:
    if KEY in config.stash:
        config.stash[KEY].close()
