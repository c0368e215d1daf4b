"""Selection of tests on stacks: other plugins' options, xdist workers, and sizes."""

from __future__ import annotations

import difflib
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.rounds.chains import Chain
    from pytest_fsstack.rounds.marks import Mistakes
    from pytest_fsstack.workloads.data.scale import Sizes

IN_A_WORKER = (
    "stacks are measured one after the other, by the process that reports them: run without -n, or with -n 0 after an "
    "-n in addopts"
)


def set_controls_aside(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove controls from the tests. They run with their chains, and are reported only below the tables."""
    from pytest_fsstack.rounds.chains import parameter_of

    controls = {item: None for item in items if (parameter := parameter_of(item)) and parameter.control}
    if controls:
        items[:] = [item for item in items if item not in controls]
        config.hook.pytest_deselected(items=list(controls))


def apply_benchmark_filters(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let --benchmark-only and --benchmark-skip treat tests with `timed` as benchmarks."""
    from pytest_fsstack.rounds.chains import measures, parameter_of

    plugin: Any = config.pluginmanager.get_plugin("pytest-benchmark")
    for item in items if plugin and (plugin.only or plugin.skip) else ():
        if parameter_of(item) and measures(item):
            item.own_markers[:] = [
                mark
                for mark in item.own_markers
                if "--benchmark-only" not in str(mark.kwargs.get("reason", "")) or mark.name != "skip"
            ]
            if plugin.skip:
                item.add_marker(pytest.mark.skip(reason="benchmarks are skipped (--benchmark-skip)"))


def skip_in_xdist_workers(
    config: pytest.Config, settings: Settings, chains: Mapping[pytest.Item, Chain], budgets: int
) -> None:
    """Skip measuring chains in workers of pytest-xdist, with all of their steps. Warn if that skips `budgets`.

    Parallel measurements would disturb each other, and the controller would not get the results. So a gate is refused:
    raises `pytest.UsageError`.
    """
    # Workers of kernels take turns, and send their results to the controller.
    if not hasattr(config, "workerinput") or options.worker_input(config):
        return
    measuring = [item for item, chain in chains.items() if chain.timed]
    if measuring and (gate := _gate(settings)):
        raise pytest.UsageError(f"{gate}: nothing would be measured: {IN_A_WORKER}")
    for item in measuring:
        item.add_marker(pytest.mark.skip(reason=IN_A_WORKER))
    try:
        if budgets:
            next(iter(chains)).warn(pytest.PytestWarning(f"no budget is judged: {IN_A_WORKER}"))
    except pytest.PytestWarning as warning:
        # With -W error. pytest-xdist would show an internal error.
        raise pytest.UsageError(str(warning)) from None


def _gate(settings: Settings) -> str:
    """Return the origin of an option that demands measurements, or an empty text."""
    demands = {
        "strict": settings.strict,
        "if-unavailable": settings.missing_fails,
        "max-regression": settings.max_regression is not None,
        # A budget in the ini may be for other sessions.
        "budget": settings.is_typed("budget"),
    }
    return next((settings.origin(name) for name, demanded in demands.items() if demanded), "")


def unknown_words(config: pytest.Config, collected: Sequence[pytest.Item], selected: int) -> list[str]:
    """Return lines about words of ``-k`` that select nothing, and about an expression that selects no test."""
    from pytest_fsstack.rounds.chains import parameter_of

    expression: str = config.option.keyword
    stacks = {parameter.stack.id: None for item in collected if (parameter := parameter_of(item))}
    if not expression or not stacks:
        return []
    names = {name.lower() for item in collected for name in [*item.keywords, *item.nodeid.split("::")]}
    lines = []
    words = [word for word in re.findall(r"[^\s()]+", expression) if word not in ("and", "or", "not")]
    for word in dict.fromkeys(words):
        if not any(word.lower() in name for name in names):
            near = _nearest(word.lower(), stacks, names)
            lines.append(f"-k: nothing is called {word!r}{f'; did you mean {near}?' if near else ''}")
    if not selected:
        ids, further = list(stacks)[:40], len(stacks) - 40
        more = f" and {further} more" if further > 0 else ""
        lines.append(f"-k {expression!r} selects none of {len(collected)} tests. Stacks: {', '.join(ids)}{more}")
        lines.append("--collect-only -q without -k lists all tests")
    return lines


def _nearest(word: str, stacks: Iterable[str], names: Iterable[str]) -> str:
    """Return the stack, the layer or another name that is most like a word, or an empty text."""
    layers = {layer for stack in stacks for layer in re.split(r"[+:-]", stack)}
    parts = {part for name in names for part in re.split(r"\W+|_(?=[a-z])", name)}
    for candidates in [*stacks, *layers], [*names, *parts]:
        if near := difflib.get_close_matches(word, candidates, n=1):
            return near[0]
    return ""


def sizes_of(item: pytest.Item, scale: str) -> Sizes:
    """Return the sizes of a test at the chosen scale. Raises `ValueError`."""
    from pytest_fsstack.workloads.data.scale import sizes_at

    mark = item.get_closest_marker("fsstack_sizes")
    if mark is None:
        raise ValueError("uses sizes, but has no marker fsstack_sizes that says which")
    sizes: Sizes = sizes_at(mark.kwargs, scale)
    return sizes


def sizes_or_failure(item: pytest.Item, scale: str) -> Sizes:
    """Return the sizes of a test at the chosen scale, or fail the test."""
    try:
        return sizes_of(item, scale)
    except ValueError as error:
        pytest.fail(f"{item.nodeid}: {error}", pytrace=False)


def check_sizes(chains: Iterable[Chain], settings: Settings, mistakes: Mistakes) -> None:
    """Skip the tests whose sizes do not fit the device. If none fits at a scale that was given, refuse the session."""
    from pytest_fsstack.workloads.data.scale import why_unfit

    directory = settings.directory or Path(tempfile.gettempdir())
    problems: list[tuple[Chain, pytest.Item, str]] = []
    fitting = False
    for chain, item in ((each, item) for each in chains for item in each.examples()):
        if item.get_closest_marker("fsstack_sizes") is None:
            fitting = True
            continue
        try:
            problem = why_unfit(sizes_of(item, settings.scale), settings.scale, chain.device, directory)
        except (ValueError, OSError) as error:
            mistakes.add(f"fsstack_sizes: {error}", item)
            continue
        fitting = fitting or not problem
        if problem:
            problems.append((chain, item, problem))
    for chain, item, problem in problems:
        if settings.value("scale") and not fitting:
            mistakes.add(problem, item)
        for other in chain.of_step(item):
            other.add_marker(pytest.mark.skip(reason=problem))


def check_weights(weights: Mapping[str, float], chains: Mapping[pytest.Item, Chain]) -> None:
    """Refuse a weight for an unknown step. Raises `pytest.UsageError`."""
    from pytest_fsstack.judging.overall import unknown_step

    if problem := unknown_step(weights, (step for chain in chains.values() for step in chain.steps)):
        raise pytest.UsageError(f"--fsstack-weights: {problem}")
