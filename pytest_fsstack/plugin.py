"""The interface to pytest: options, marks, fixtures and hooks.

This is loaded into every pytest run of the machine, often without compiled files. Therefore it is short and imports
nothing of the package. The options are declared when something mentions them, or when a test uses a stack.

PYTEST_DONT_REWRITE: pytest would compile it anew in each run that writes no compiled files.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_fsstack.data.archive import Corpus
    from pytest_fsstack.data.scale import Sizes
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.session.ending import Ending
    from pytest_fsstack.session.state import Session
    from pytest_fsstack.stack.build import Built

MARKERS = (
    "fsstack(*stacks, baseline=None, below=None, on=None, keep=()): run the test on each of these stacks, such as "
    "'luks | ext4' or 'name = luks | ext4'; the others are compared with the baseline (by default the first); "
    "below='ext4' goes between where a stack does not fit the device; on='recorded' goes below each stack without "
    "such a layer, also those of --fsstack-stacks; keep=('name',) names stacks that stay beside those",
    "fsstack_budget(overhead=0.30, metric='seconds'): fail where a stack costs more than this over the baseline, or "
    "with limit=... more than this; a dictionary gives one number for each pattern of stack names",
    "fsstack_repeat(times): run a step that only reads this many times in each round, each from cold, and take the "
    "median; with 'auto', the best number after the first eight rounds",
    "fsstack_sizes(smoke, small, paper): the sizes of a scenario at each --fsstack-scale, for its fixture sizes",
    "fsstack_table(name, **options): the shape in which the chain's results are published, such as 'times' or 'matrix'",
    "fsstack_remark(text): what a reader of the chain's results should know; reports show it among their notes",
)


#: Where the plugin's state is, once a session has any.
KEY: pytest.StashKey[Session] = pytest.StashKey()
#: What the session shows and writes in the end.
ENDING: pytest.StashKey[Ending] = pytest.StashKey()
#: Where the options are declared.
PARSER: pytest.StashKey[pytest.Parser] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    config = pluginmanager.get_plugin("pytestconfig")
    assert isinstance(config, pytest.Config)
    config.stash[PARSER] = parser
    if _may_mention_options(config):
        _declare_options(config)


def _may_mention_options(config: pytest.Config) -> bool:
    """Whether the command line, the environment, the ini or the controller of a worker may give one of the options."""
    words = [str(word) for word in config.invocation_params.args]
    if "_ARGCOMPLETE" in os.environ or any(word.startswith("@") or _asks_for_help(word) for word in words):
        return True
    texts = [*words, *vars(config.option), os.environ.get("PYTEST_ADDOPTS", "")]
    if config.inipath is not None:
        texts.append(config.inipath.read_text(encoding="utf-8", errors="replace"))
    return any("fsstack-" in text or "fsstack_" in text or _is_fio(text) for text in texts)


def _is_fio(word: str) -> bool:
    """Whether a word names a file of fio jobs, or a test in one."""
    return word.partition("::")[0].endswith(".fio")


def _asks_for_help(word: str) -> bool:
    return word == "--help" or (word.startswith("-") and not word.startswith("--") and "h" in word)


def _declare_options(config: pytest.Config) -> None:
    from pytest_fsstack import options

    options.declare(config, config.stash[PARSER])


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_fsstack import hooks

    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if not config.pluginmanager.hasplugin("fsstack-command-line"):
        return
    from pytest_fsstack import options

    if options.given_for(config, "fio") or any(map(_is_fio, config.args)):
        from pytest_fsstack.session.commands import FioFiles

        config.pluginmanager.register(FioFiles(config), "fsstack-fio")
    if options.any_given(config):
        if scenarios := options.value(config, "scenario"):
            from pytest_fsstack.options.scenarios import Scenarios

            config.pluginmanager.register(Scenarios(config, scenarios), "fsstack-scenarios")
        if options.given_for(config, "command"):
            from pytest_fsstack.session.commands import Commands

            config.pluginmanager.register(Commands(config), "fsstack-commands")
        # A mistake on the command line is told before anything is collected.
        session = session_of(config)
        if any(
            options.value(config, name)
            for name in ("compare", "compare-anyway", "save-reference", "history", "max-regression")
        ):
            from pytest_fsstack.over_time import plugin as past

            past.start(config, session)


def pytest_plugin_registered(plugin: object, manager: pytest.PytestPluginManager) -> None:
    config = manager.get_plugin("pytestconfig")
    if config is not None and KEY in config.stash and (layers := getattr(plugin, "pytest_fsstack_layers", None)):
        # A conftest in a directory of tests, which is loaded when they are collected.
        config.stash[KEY].add_layers(layers())


def pytest_fsstack_workloads() -> dict[str, Any]:
    from pytest_fsstack.correctness.exploring import explore
    from pytest_fsstack.correctness.fsxfile import fsx
    from pytest_fsstack.correctness.posix import pjdfstest
    from pytest_fsstack.workloads import BUILT_IN

    return {**BUILT_IN, "explore": explore, "fsx": fsx, "pjdfstest": pjdfstest}


def pytest_fsstack_reports() -> dict[str, Any]:
    from pytest_fsstack.report import BUILT_IN

    return dict(BUILT_IN)


def pytest_fsstack_tables() -> dict[str, Any]:
    from pytest_fsstack.report.shapes import BUILT_IN

    return dict(BUILT_IN)


def session_of(config: pytest.Config) -> Session:
    """The plugin's state, made when it is first needed."""
    if KEY not in config.stash:
        _declare_options(config)
        from pytest_fsstack.session.ending import Ending
        from pytest_fsstack.session.outcomes import Outcomes
        from pytest_fsstack.session.state import Session

        session = Session.of(config)
        config.stash[ENDING], config.stash[KEY] = Ending(session), session
        config.pluginmanager.register(Outcomes(session), "fsstack-outcomes")
        from pytest_fsstack.options import labels

        if labels.of_ci(os.environ):
            from pytest_fsstack.ci import reporting as ci

            ci.start(config, config.stash[KEY])
    return config.stash[KEY]


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    if words := getattr(early_config.known_args_namespace, "fsstack_overwrite", None):
        from pytest_fsstack.options.settings import GIVEN_UP, look_up

        # Before any conftest runs: the flag is about these very devices, and not about what their names mean later.
        early_config.stash[GIVEN_UP] = {word: look_up(word) for word in words}
    if getattr(early_config.known_args_namespace, "fsstack_exit", None) != "bisect":
        return (yield)
    from pytest_fsstack.ci.bisecting import Bisecting, skipping_broken_conftests

    early_config.pluginmanager.register(Bisecting(lambda config: config.stash.get(KEY, None)), "fsstack-bisecting")
    with skipping_broken_conftests():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if not config.pluginmanager.hasplugin("fsstack-command-line"):
        return None
    from pytest_fsstack import options

    if options.worker_input(config):
        from pytest_fsstack.kernels.worker import leave_out_plugins

        leave_out_plugins(config)
    if options.value(config, "cleanup"):
        from pytest_fsstack.session.cleanup import cleanup

        return cleanup(config)
    if options.value(config, "doctor"):
        from pytest_fsstack.preflight.doctor import Doctor

        config.pluginmanager.register(Doctor(config, session_of(config)), "fsstack-doctor")
    elif options.value(config, "dry-run"):
        from pytest_fsstack.preflight.dry_run import DryRun

        config.pluginmanager.register(DryRun(config, session_of(config)), "fsstack-dry-run")
    elif options.value(config, "kernel") and not (hasattr(config, "workerinput") or config.getoption("collectonly")):
        from pytest_fsstack.kernels import controller

        # Before pytest-xdist reads its options, which this sets.
        try:
            config.pluginmanager.register(controller.start(config, session_of(config)), "fsstack-kernels")
        except pytest.exit.Exception as ended:
            # No session has begun that would catch it, and a first guest takes half a minute.
            session_of(config).close()
            print(f"{ended.msg} before the guests were started")
            return ended.returncode
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist which devices this session means by their names, and when the session is gone."""
    from pytest_fsstack import options

    node.workerinput[options.CONTROLLER] = node.gateway.newchannel()
    if KEY in node.config.stash:
        node.workerinput[options.DEVICES] = node.config.stash[KEY].settings.identities()


def pytest_sessionstart(session: pytest.Session) -> None:
    if KEY in session.config.stash and not session.config.stash[KEY].only_looks:
        session.config.stash[KEY].set_up_machine()


# -- collection --------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fsstack" in metafunc.fixturenames:
        session = session_of(metafunc.config)
        # Items stay until the end. Without this, Python looks through all of them for garbage several times.
        gc.freeze()
        parameters = session.parameters.of(metafunc.definition, session.mistakes)
        if parameters is not None:
            values = [parameter.value for parameter in parameters]
            # Outside of a class the two are one; but by the wider one, pytest sorts all tests of a module.
            metafunc.parametrize("fsstack", values, indirect=True, scope="class" if metafunc.cls else "function")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    # Before -k and the like take items away: a selected test may stand on tests that are not selected.
    collected = list(items) if KEY in config.stash else []
    yield
    if KEY in config.stash:
        gc.unfreeze()
        _take_over(config, collected, items)


def _take_over(config: pytest.Config, collected: list[pytest.Item], items: list[pytest.Item]) -> None:
    """Let chains run round by round: here, or in a kernel's worker when it has the turn."""
    from pytest_fsstack import options

    if reason := os.environ.get(options.GUEST_DOWN):
        from pytest_fsstack.kernels.standin import StandIn

        config.pluginmanager.register(StandIn(config, reason), "fsstack-stand-in")
    elif options.only_looks(config):
        config.stash[KEY].plan(collected, items, None)
    elif "turns" in options.worker_input(config):
        from pytest_fsstack.kernels.worker import Worker

        config.stash[KEY].plan(collected, items, Worker)
    else:
        from pytest_fsstack.rounds.loop import Loop

        config.stash[KEY].plan(collected, items, Loop)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    if KEY not in config.stash:
        return []
    from pytest_fsstack.session.ending import header

    return header(config.stash[KEY])


# -- fixtures ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="class")
def fsstack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The stack under test, built afresh: `path`, `device`, `spec`, `usage()`, `sync()`, `remount()`."""
    if not hasattr(request, "param"):
        pytest.fail(session_of(request.config).parameters.why_without_stack(), pytrace=False)
    with session_of(request.config).built(request.param, tmp_path_factory.getbasetemp) as built:
        yield built


@pytest.fixture
def timed(request: pytest.FixtureRequest, fsstack: Built) -> Iterator[Timed]:
    """The timed section of a step: ``with timed(bytes=...): timed.run("tar", ...)``."""
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.rounds.runner import REPEATED, SAMPLE

    block = Timed(fsstack, request.node.stash.get(REPEATED, ""))
    yield block
    if block.sample is not None:
        request.node.stash[SAMPLE] = block.sample


@pytest.fixture
def fsstack_seed(request: pytest.FixtureRequest) -> int:
    """Give a number to draw from: another one in each round, the same for all stacks. --fsstack-seed replays it."""
    from pytest_fsstack.rounds.runner import ROUND, seed_of_round

    return seed_of_round(session_of(request.config).settings.seed, request.node.stash.get(ROUND, 0))


@pytest.fixture(scope="session")
def corpus(request: pytest.FixtureRequest) -> Corpus:
    """The files that workloads use: generated, or those of ``--fsstack-corpus``."""
    return session_of(request.config).corpus


@pytest.fixture(scope="class")
def sizes(request: pytest.FixtureRequest) -> Sizes:
    """The sizes of the scenario, as its marker ``fsstack_sizes`` has them for ``--fsstack-scale``."""
    from pytest_fsstack.session.selecting import sizes_of

    try:
        return sizes_of(request.node, session_of(request.config).settings.scale)
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
        config.stash[ENDING].summarize(terminalreporter)
        if stacks := config.stash[KEY].lacking_kernel():
            from pytest_fsstack.kernels.advice import another_kernel

            first, second = another_kernel(stacks)
            terminalreporter.write_line(f"fsstack: {first}")
            terminalreporter.write_line(second)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    ending = session.config.stash.get(ENDING, None)
    if ending is not None:
        ending.finish(session)
    try:
        yield
    finally:
        if ending is not None:
            ending.write_missing_reports()


def pytest_unconfigure(config: pytest.Config) -> None:
    if KEY in config.stash and (number := config.stash[KEY].close()):
        config.stash[ENDING].exit_by_signal(number)
