"""Tests without a file of Python: those of ``--fsstack-command``, with the ids ``command::NAME[STACK]``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_fsstack import options
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.options.commands import parse_check
from pytest_fsstack.workloads import BUILT_IN, command, needs_of
from pytest_fsstack.workloads.command import split

if TYPE_CHECKING:
    from pytest_fsstack.machine.needs import Need
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

#: The first part of the ids of commands, which takes the place of a file.
FILE = "command"


class Step(NamedTuple):
    """A command that is measured, and the commands before and after it."""

    name: str
    line: str
    setup: Sequence[str]
    check: Sequence[str]
    shell: bool

    @property
    def programs(self) -> list[str]:
        """The programs that it runs, as far as they show before a stack stands."""
        lines = [*self.setup, self.line, *self.check]
        words = ["sh"] if self.shell else [split(line)[0] for line in lines]
        return [word for word in dict.fromkeys(words) if "{}" not in word and (os.sep not in word or word[0] == os.sep)]


def steps(config: pytest.Config) -> list[Step]:
    """Return the steps that the options ask for. Raises `pytest.UsageError`."""
    commands: list[tuple[str, str]] = options.value(config, "command")
    setup, shell = options.value(config, "setup"), options.value(config, "shell")
    names = [name for name, _ in commands]
    with options.blaming_option(config, "command"):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two steps are called {twice!r}: name them, as in 'first={dict(commands)[twice]}'")
        if not shell:
            for _, line in commands:
                split(line)
    with options.blaming_option(config, "setup"):
        _check_words(setup, shell)
    with options.blaming_option(config, "check"):
        checks = [parse_check(text, names) for text in options.value(config, "check")]
        _check_words([line for _, line in checks], shell)
    result: list[Step] = []
    for name, line in commands:
        check = [text for step, text in checks if step in ("", name)]
        result.append(Step(name, line, () if result else setup, check, shell))
    return result


def _check_words(lines: Sequence[str], shell: bool) -> None:
    for line in lines:
        if shell and not line.strip():
            raise ValueError("there is no command")
        if not shell:
            split(line)


class MadeFile(pytest.Module):
    """A file whose tests are made here: the steps of one chain, which its path names."""

    def tests(self) -> Mapping[str, Callable[..., None]]:
        """Return the functions of the steps, by name."""
        raise NotImplementedError

    def _getobj(self) -> ModuleType:
        chain = type(self.name, (), {**self.tests(), "__test__": True, "__module__": self.name})
        module = ModuleType(self.name)
        setattr(module, self.name, chain)
        return module

    def collect(self) -> Iterable[pytest.Collector]:
        return [pytest.Class.from_parent(self, name=self.name, nodeid=self.nodeid)]


def made_test(
    name: str, summary: str, requirements: Iterable[Need], act: Callable[[Timed, Built], None]
) -> Callable[..., None]:
    """Return the function of a step that calls `act`."""

    def test(self: object, timed: Timed, fsstack: Built) -> None:
        try:
            act(timed, fsstack)
        except (AssertionError, commands.CommandError) as error:
            # No line of this file helps the user.
            pytest.fail(str(error), pytrace=False)

    test.__name__ = test.__qualname__ = name
    test.__doc__ = summary
    test.__test__ = True  # type: ignore[attr-defined]
    test.needs = tuple(requirements)  # type: ignore[attr-defined]
    return test


class CommandFile(MadeFile):
    """The steps of --fsstack-command."""

    steps: list[Step]

    def tests(self) -> Mapping[str, Callable[..., None]]:
        return {step.name: _test_of(step) for step in self.steps}


def _test_of(step: Step) -> Callable[..., None]:
    def act(timed: Timed, fsstack: Built) -> None:
        command(timed, fsstack, step.line, setup=step.setup, check=step.check, shell=step.shell)

    return made_test(step.name, f"Run `{step.line}`", _needs(step), act)


def _needs(step: Step) -> list[Need]:
    known = {need: None for function in BUILT_IN.values() for need in needs_of(function)}
    tools = tuple(need for need in known if isinstance(need, needs.Tool))
    return [needs.AnyTool(program, tools) for program in step.programs]


class Commands:
    """Collects the commands, and of these the chosen ones. Raises `pytest.UsageError`."""

    def __init__(self, config: pytest.Config) -> None:
        self.steps = steps(config)
        if not (options.given_for(config, "stacks")):
            raise pytest.UsageError("--fsstack-command: on which stacks? Add --fsstack-stacks=ext4, for example")
        if not options.only_looks(config):
            with options.blaming_option(config, "command"):
                if lacks := needs.missing(need for step in self.steps for need in _needs(step)):
                    raise ValueError("; ".join(lacks))
        self._chosen: list[str] = []
        if config.args_source is not config.ArgsSource.ARGS:
            config.args[:] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Take the ids of commands from the words that pytest looks up as files."""
        config = session.config
        place = config.rootpath / FILE
        for word in list(config.args):
            file, _, test = word.partition("::")
            if test and config.invocation_params.dir / file == place:
                config.args.remove(word)
                self._chosen.append(f"{FILE}::{test}")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            file: CommandFile = CommandFile.from_parent(collector, path=collector.config.rootpath / FILE)
            file.steps = self.steps
            report.result.append(file)
        return report

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not self._chosen:
            return
        chosen = tuple(f"{test}[" for test in self._chosen)
        others = [
            item
            for item in items
            if item.getparent(CommandFile) and not (item.nodeid in self._chosen or item.nodeid.startswith(chosen))
        ]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item not in others]
