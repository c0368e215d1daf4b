"""Write the pages of the reference from the code: ``python docs/generate.py``. A test compares them."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from signal import SIGINT
from typing import Any, get_args
from unittest import mock

import pytest

import pytest_fsstack
from pytest_fsstack import hooks, options, plugin, workloads
from pytest_fsstack.command import USAGE_ERROR, parser, subcommands
from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.kernel_encryption import FileEncryption
from pytest_fsstack.machine.needs import (
    Crate,
    DeviceMapper,
    DeviceNode,
    KernelCipher,
    KernelFilesystem,
    Need,
    Root,
    Tool,
    not_in_kernel,
)
from pytest_fsstack.plugin import bisecting
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.conditions import Discarded
from pytest_fsstack.records.environment import Corpus, Cpu, Device, Driver, Environment, Kernel
from pytest_fsstack.records.notices import Difference, Notice
from pytest_fsstack.records.readings import Derived, Ratios, Reading
from pytest_fsstack.records.results import Confirmation, Judgement, Note, StackInfo, TestOutcome
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.records.verdicts import CarryOver, Estimate, Looks, Repetition, Verdict
from pytest_fsstack.stack.layer import Layer, Limit
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.truth.correctness.contents import LIMITED, limits_of
from pytest_fsstack.truth.correctness.drawing import Call

HEAD = """\
# Layers

This page lists the layers, their options and their needs. It is generated from the code by `docs/generate.py`.

A stack names its layers from the bottom up, with options as keywords: `luks(key_size=256) | ext4(mount='noatime')`.
`name = stack` gives it a name of your own. Options such as `mkfs`, `mount`, `open` and `init` go to the tool verbatim.
No filesystem discards blocks or initialises itself in the background unless these options ask for it. A layer that this
machine cannot build is skipped with the reason. `pytest --fsstack-doctor=all` shows the reasons for all layers.

| layer | takes | gives | options |
|---|---|---|---|
"""


def page() -> str:
    """Return docs/layers.md: an overview, and a section for each layer."""
    rows = [
        f"| [`{layer.name}`](#{layer.name}) | {places_taken(layer)} | {layer.gives.kind} | "
        f"{', '.join(f'`{option}`' for option in layer.options())} |\n"
        for layer in BUILT_IN.values()
    ]
    # The page is the same on every machine, but zfs chooses its driver by the kernel.
    with mock.patch.object(KernelFilesystem, "missing", lambda kernel: not_in_kernel(kernel.name)):
        return "\n".join(["".join([HEAD, *rows]), *(section(layer) for layer in BUILT_IN.values()), limits()])


#: What a limit changes apart from calls that may be refused.
_EFFECTS = {
    Limit.MODES: "modes are not compared",
    Limit.SPARSE: "`contents` makes no gaps of gigabytes",
    Limit.CASES: "`contents` makes no such names",
    Limit.CHECKSUMS: "`bit_rot` accepts wrong data",
    Limit.NAME_CHECKSUMS: "`bit_rot` accepts missing files",
    Limit.POWER_CUTS: "`power_cut` accepts any loss",
}


def limits() -> str:
    """Return the section about the names of limits."""
    rows = []
    for limit in Limit:
        calls = [f"`{name}`" for name, limits in LIMITED.items() if limit in limits]
        if limit in limits_of(Call("fallocate", (0, "PUNCH_HOLE", 0, 0))) and limit is not Limit.ALLOCATION:
            calls.append("`fallocate` with PUNCH_HOLE")
        effects = [f"{', '.join(calls)} may fail"] if calls else []
        effects += [_EFFECTS[limit]] if limit in _EFFECTS else []
        rows.append(f"| `Limit.{limit.name}` | {limit.value} | {'; '.join(effects)} |")
    return "\n".join([LIMITS, *rows, ""])


LIMITS = """\
## Limits

A layer declares what its directories lack by names of `pytest_fsstack.Limit`. The sections above show this as "It may
lack".

| name | what is lacking | effect in the scenarios |
|---|---|---|"""


def places_taken(layer: type[Layer]) -> str:
    return " or ".join(kind.kind for kind in layer.takes)


def section(layer: type[Layer]) -> str:
    """Return the section of a layer: its description, places, requirements and options."""
    lines = [f"## {layer.name}", "", inspect.cleandoc(layer.__doc__ or ""), ""]
    lines += [f"Takes a {places_taken(layer)}, gives a {layer.gives.kind}.", ""]
    lines += [f"Example: `{layer.example_stack()}`", ""]
    if words := list(dict.fromkeys(filter(None, map(need, layer().needs())))):
        lines += [f"Needs {', '.join(words)}.", ""]
    if lacked := lacks(layer):
        lines += [lacked, ""]
    if layer.options():
        hints = layer.option_types()
        lines += ["| option | default | meaning |", "|---|---|---|"]
        for name, option in layer.options().items():
            choices = option.metadata.get("choices") or ()
            doc = option.metadata["doc"] + (f" ({', '.join(map(str, choices))})" if choices else "")
            kinds = " or ".join(
                kind.__name__ for kind in (typing.get_args(hints[name]) or (hints[name],)) if kind is not type(None)
            )
            lines.append(f"| `{name}` ({kinds}) | `{option.default!r}` | {in_cell(doc)} |")
        lines.append("")
    return "\n".join(lines)


def lacks(layer: type[Layer]) -> str:
    """Return the features that its directories may lack, with the sources, empty if they have all."""
    by_source: dict[str, list[str]] = {}
    for limit, source in {**layer().limited(), **layer.limits}.items():
        by_source.setdefault(source, []).append(limit.value)
    features = [f"- {', '.join(limits)} ({source})" for source, limits in by_source.items()]
    longest = max(
        length for length in range(1, 1 + min(layer.name_max, 255)) if max(layer().stored_names(length)) < 256
    )
    features += [f"- names of more than {longest} bytes"] if longest < 255 else []
    return "\n".join(["It may lack", "", *features]) if features else ""


def need(need: Need) -> str:
    """Return a requirement in a few words."""
    if isinstance(need, Crate):
        return f"`{need.name}` (`cargo install {need.name}`)"
    if isinstance(need, Tool):
        return f"`{need.command}` (Debian: {need.package})"
    if isinstance(need, KernelFilesystem | KernelCipher):
        return f"{need.name} in the kernel"
    if isinstance(need, DeviceMapper):
        return f"dm-{need.target} in the kernel"
    if isinstance(need, DeviceNode | FileEncryption):
        return f"{need.feature} in the kernel"
    return "root" if isinstance(need, Root) else ""


OPTIONS_HEAD = """\
# Options

This page lists all options of the plugin. It is generated from `pytest_fsstack/options` by `docs/generate.py`.

The command line overrides the ini. Only budgets add up: those of the ini hold as well, and those of the command line
are applied last. Values are checked in the same way in both places. An unknown name in the ini that begins with
`fsstack_` is an error.
"""


def options_page() -> str:
    """Return docs/options.md: a section for each option."""
    lines = [OPTIONS_HEAD]
    for option in options.OPTIONS:
        ini = f"In an ini: `{option.ini_name}`." if option.ini else "Only on the command line."
        again = f" It may be {'repeated, or have several lines' if option.ini else 'repeated'}." if option.many else ""
        text = f"{option.description[0].upper()}{option.description[1:]}."
        lines += [f"## `{option.usage}`", "", text, *(["", option.doc] if option.doc else []), "", ini + again, ""]
    return "\n".join(lines)


COMMAND_HEAD = """\
# The command fsstack

This page lists the subcommands of `fsstack`. They are short forms of pytest's options, and most of them accept
pytest's options too. `fsstack COMMAND --help` lists the words of each.
The page is generated by `docs/generate.py`.

Wrong usage prints one sentence and gives exit code 4. A session's exit code is pytest's. `run` on devices, `doctor
install` and `cleanup` need root. `python -m pytest_fsstack.command` is the same command.

| command | effect | the same with pytest |
|---|---|---|
"""
COMMAND_EXPLAIN = """
## The commands of a stack

`fsstack stacks explain STACK` shows the commands of one stack. `pytest --fsstack-dry-run` shows those of all stacks of
the selected tests, with missing parts and the time of the session. Both run the layers' own code with a recorder, so
they show exactly the commands of a session. Lines with `#` describe actions without a command. Names in capitals are
known only at run time: the number of a loop device, a process, a secret. Both accept `--fsstack-device` and
`--fsstack-size`.

```console
$ fsstack stacks explain 'ext4 | gocryptfs'
"""
COMMAND_REST = """```

A layer that starts processes without `run`, `mounted` or `served` cannot be shown. That is an error, and nothing is
started.

## Reports from saved results

`fsstack report RUN.json --html page.html --csv samples.csv` makes the reports of a session from its file of
`--fsstack-json`, in all formats, also those of other plugins. Several formats can be in one command. If one cannot be
written, the exit code is 1, and the others are written.

## A file to start from

`fsstack new layer mirror` writes `mirror_layer.py`, `test_mirror.py` and, if there is none, a `conftest.py` that
registers the layer. `fsstack new workload NAME` and `fsstack new scenario NAME` write `test_NAME.py`. The files run as
they are in a directory, without root: `pytest test_mirror.py --fsstack-device=dir:.`. Existing files are never
overwritten.
"""


def command_page() -> str:
    """Return docs/command.md: the subcommands, and the commands of an example."""
    rows = []
    for name, command in subcommands(parser()).items():
        same = (command.epilog or "").partition(": ")[2]
        rows.append(f"| `fsstack {name}` | {command.description} | {f'`{same}`' if same else ''} |")
    example = explained(Stack.parse("ext4 | gocryptfs", BUILT_IN), LoopDevice(4 << 30))
    return "\n".join([COMMAND_HEAD + "\n".join(rows), COMMAND_EXPLAIN + "\n".join(example.lines), COMMAND_REST])


PYTEST_HEAD = """\
# Fixtures, marks, hooks, exit codes

This page lists the parts of the plugin that tests and plugins use. It is generated from the code by `docs/generate.py`.
[writing-tests.md](writing-tests.md) shows how to use them, and [options.md](options.md) lists the options.
"""
MARKS_HEAD = """\
## Marks

Write `@pytest.mark.` before each, on a test, or on a class for all of its tests. `@pytest.mark.benchmark` of
pytest-benchmark is not needed with `timed`.
"""
HOOKS_HEAD = """\
## Hooks

They belong into a `conftest.py` at the root of a project, or into a pytest plugin. [own-layers.md](own-layers.md)
describes the returned values.
"""
EXIT_HEAD = """\
## Exit codes

| code | meaning for `pytest` with this plugin |
|---|---|
"""
NAMES_HEAD = """\
## What can be imported

Import these names from `pytest_fsstack`, and the ready-made workloads from `pytest_fsstack.workloads`
([workload-reference.md](workload-reference.md)). Other modules of the package may change in any version.

| name | meaning |
|---|---|
"""
#: The classes whose objects fixtures give, by the name of the fixture.
GIVEN: Mapping[str, type] = {
    "fsstack": pytest_fsstack.Built,
    "timed": pytest_fsstack.Timed,
    "corpus": pytest_fsstack.Corpus,
}
#: The lifetime of a fixture, by pytest's name for its scope.
SCOPES = {"function": "each test", "class": "each class, or test outside of one", "session": "the session"}
#: The meanings of pytest's exit codes for a session with stacks.
EXIT_CODES: Mapping[int, str] = {
    pytest.ExitCode.OK: "Every selected test passed or was skipped. Undecided tests are skipped without "
    "`--fsstack-strict`, and stacks that cannot be built without `--fsstack-if-unavailable=fail`.",
    pytest.ExitCode.TESTS_FAILED: "A budget is broken. Or a test, the building of a stack or the writing of a report "
    "failed. Or nothing was judged or measured in a session with `--fsstack-strict` or another demand for it, but "
    "without `--benchmark-disable`. Or `--fsstack-doctor` found missing parts.",
    pytest.ExitCode.INTERRUPTED: "pytest could not collect the tests, a debugger was left, or a round could not be "
    "written to the file of `--fsstack-log`.",
    pytest.ExitCode.INTERNAL_ERROR: "An internal error of pytest or of a plugin.",
    pytest.ExitCode.USAGE_ERROR: "The command line, the ini or a mark is wrong, or a device is refused. Nothing was "
    "run. One line has the reason.",
    pytest.ExitCode.NO_TESTS_COLLECTED: "No test was selected.",
}
EXIT_REST = """\
| 128 + n | Signal n ended the session ({interrupted}: Ctrl-C). The stacks are taken down and the results written. |

With `--fsstack-exit=bisect` it is a code for `git bisect run` ([bisecting.md](bisecting.md)):

| code | meaning |
|---|---|
| {good} | good: all budgets are kept |
| {bad} | bad: a budget is broken |
| {skip} | skip: unknown, for any reason |
| 128 + n | signal n ended the session, and ends the bisection |

The command `fsstack` has the code of the session that it starts, and {usage} for wrong usage. `fsstack compare` has its
own codes ([over-time.md](over-time.md#runs-that-have-ended)).
"""


def pytest_page() -> str:
    """Return docs/pytest-reference.md: fixtures, marks, hooks, exit codes and public names."""
    codes = "".join(f"| {int(code)} | {text} |\n" for code, text in EXIT_CODES.items())
    rest = EXIT_REST.format(
        **{"interrupted": 128 + SIGINT, "good": bisecting.GOOD, "bad": bisecting.BAD, "skip": bisecting.SKIP},
        usage=USAGE_ERROR,
    )
    return "\n".join(
        [
            PYTEST_HEAD,
            *fixtures(),
            MARKS_HEAD,
            *marks(),
            HOOKS_HEAD,
            *hook_sections(),
            EXIT_HEAD + codes + rest,
            names(),
        ]
    )


def fixtures() -> Iterator[str]:
    """Yield a section for each fixture: its scope, its docstring, and the members of its object."""
    yield "## Fixtures\n"
    for function in (node for node in tree(plugin).body if isinstance(node, ast.FunctionDef)):
        for decorator in function.decorator_list:
            words = ast.unparse(decorator)
            if words.startswith("pytest.fixture"):
                scope = ast.literal_eval(words.partition("scope=")[2].rstrip(")") or "'function'")
                yield f"### `{function.name}`\n\n{ast.get_docstring(function)} There is one for {SCOPES[scope]}.\n"
                if function.name in GIVEN:
                    yield members(function.name, GIVEN[function.name])


def members(name: str, given: type) -> str:
    """Return a table of the public members of a class, with the name of its fixture before each."""
    lines = ["| | |", "|---|---|"]
    (definition,) = (node for node in tree(given).body if isinstance(node, ast.ClassDef))
    source = inspect.getsource(given).splitlines()
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = f"`{in_cell(ast.unparse(node.annotation))}`"
            lines.append(f"| `{name}.{node.target.id}` | {': '.join([kind, *comment_above(source, node.lineno)])} |")
        elif isinstance(node, ast.Assign):
            lines += [
                f"| `{name}.{target.id}` | {'; '.join(comment_above(source, node.lineno))} |"
                for target in node.targets
                if isinstance(target, ast.Name)
            ]
        elif isinstance(node, ast.FunctionDef) and (node.name == "__call__" or not node.name.startswith("_")):
            doc = " ".join((ast.get_docstring(node) or "").split())
            plain = any(ast.unparse(each) in ("property", "staticmethod") for each in node.decorator_list)
            call = "" if plain else arguments(node.args)
            before = "with " if node.name == "__call__" else ""
            method = "" if node.name == "__call__" else f".{node.name}"
            lines.append(f"| `{before}{name}{method}{in_cell(call)}` | {in_cell(doc)} |")
    return "\n".join([*lines, ""])


def comment_above(source: list[str], number: int) -> list[str]:
    """Return the comment above an attribute in that line, counted from 1."""
    lines = itertools.takewhile(lambda line: line.strip().startswith("#: "), reversed(source[: number - 1]))
    text = " ".join(line.strip().removeprefix("#: ") for line in reversed([*lines]))
    return [in_cell(text)] if text else []


def arguments(given: ast.arguments) -> str:
    """Return the arguments of a call, with defaults and without types."""
    for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
        if argument is not None:
            argument.annotation = None
    words = ast.unparse(given).removeprefix("self").removeprefix(", ")
    # Defaults already show which arguments are keywords.
    return f"({words.removeprefix('*, ')})"


def marks() -> Iterator[str]:
    """Yield a line for each mark."""
    for marker in plugin.MARKERS:
        usage, _, meaning = marker.partition("): ")
        yield f"- **`{usage})`**: {meaning}."
    yield ""


def hook_sections() -> Iterator[str]:
    """Yield a line for each hook: its return value and its docstring."""
    for name, hook in vars(hooks).items():
        if name.startswith("pytest_"):
            yield f"- **`{name}()`** -> `{inspect.signature(hook).return_annotation}`: {inspect.getdoc(hook)}"
    yield ""


def names() -> str:
    """Return a table of the public names of the package."""
    rows = []
    for name in sorted(pytest_fsstack.__all__, key=str.lower):
        member = getattr(pytest_fsstack, name)
        documented = inspect.isclass(member) or inspect.isfunction(member)
        doc = (inspect.getdoc(member) or "").partition("\n\n")[0] if documented else OTHER_NAMES[name]
        rows.append(f"| `{name}` | {in_cell(' '.join(doc.split()))} |\n")
    return NAMES_HEAD + "".join(rows)


#: Public names without a docstring: neither classes nor functions.
OTHER_NAMES = {
    "__version__": "The version, without the commit that `fsstack --version` shows.",
    "FUSE": "The need of `/dev/fuse`.",
    "Place": "`Block` or `Directory`: the place below or above a layer.",
    "MOUNT": "The `Items` of every mount.",
    "FUSE_MOUNT": "The `Items` of every mount by FUSE.",
    "FLAG": "In a layer's `grammar`: the option takes no value.",
    "NUMBER": "In a layer's `grammar`: a number.",
    "SIZE": "In a layer's `grammar`: a number with a unit.",
    "KEYWORD": "In a layer's `grammar`: a name that the tool knows, with a level or a sign.",
    "TEXT": "In a layer's `grammar`: a label, which is never opened.",
    "NAME": "In a layer's `grammar`: the name of a file in the directory below.",
    "INSIDE": "In a layer's `grammar`: a path that is looked up within the filesystem.",
    "OUTSIDE": "In a layer's `grammar`: the option reaches outside of the stack, and is refused.",
}

WORKLOADS_HEAD = """\
# Parameters of the ready-made workloads

This page lists the parameters of the plugin's workloads. [workloads.md](workloads.md) helps to choose one.
The page is generated from the code by `docs/generate.py`.

After `from pytest_fsstack import workloads`, call `workloads.NAME(timed, fsstack, ...)`. Sizes are in bytes.
`cold=False` leaves out the cold start of the timed block. A workload raises `AssertionError` with the difference if a
stack did not do the work, and `CommandError` if a command fails. It skips the test if a tool is not installed.
"""


def workload_page() -> str:
    """Return docs/workload-reference.md: each ready-made workload with its parameters."""
    return "\n".join(
        [WORKLOADS_HEAD, *(workload_section(name, step) for name, step in sorted(workloads.BUILT_IN.items()))]
    )


def workload_section(name: str, step: Callable[..., object]) -> str:
    """Return the section of a step: its work, requirements and parameters."""
    (definition,) = (node for node in tree(inspect.unwrap(step)).body if isinstance(node, ast.FunctionDef))
    lines = [f"## {name}", "", inspect.getdoc(step) or "", ""]
    if words := list(dict.fromkeys(filter(None, map(need, workloads.needs_of(step))))):
        lines += [f"Needs {', '.join(words)}.", ""]
    given = definition.args
    signature = inspect.signature(step)
    positional = list(zip(given.args, [*[None] * (len(given.args) - len(given.defaults)), *given.defaults]))
    rows = [
        f"| `{argument.arg}` | `{in_cell(ast.unparse(argument.annotation or ast.Constant('')))}` | "
        f"{shown_default(default, signature.parameters[argument.arg].default)} |"
        for argument, default in [*positional, *zip(given.kwonlyargs, given.kw_defaults)]
        if argument.arg not in ("timed", "fsstack")
    ]
    if rows:
        lines += ["| parameter | type | default |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def shown_default(default: ast.expr | None, value: object) -> str:
    """Return the default as it is written, or its value if it is a private name."""
    if default is None:
        return "must be given"
    private = any(isinstance(node, ast.Name) and node.id.startswith("_") for node in ast.walk(default))
    return f"`{value!r}`" if private else f"`{ast.unparse(default)}`"


RECORDS_HEAD = """\
# Types of the results

This page lists the records of which results consist. It is generated from their classes by `docs/generate.py`.
[results.md](results.md) explains them.

A row with a type is a field. The file of `--fsstack-json` has it under the same name. The other rows exist in Python
only. A field is always there, except that a sample leaves out what is empty. In JSON the key of a round is its number
from 0, and a tuple is an array. A notice has the name of its class as `kind`.

`python -c "from pytest_fsstack.records import saved; print(saved.schema())"` prints the JSON Schema (2020-12).

## Records
"""
VIEWS_HEAD = """\
## In Python

The function of a report gets `Results`, that of a table a `View` ([own-layers.md](own-layers.md#helpers)). `step`,
`stack` and `metric` are names as in the tables: `chain.median("du", "luks+ext4", "written_bytes")`.
"""
#: The classes whose objects are saved and read by reports and tables, by the name that stands for an object.
RECORDS: Mapping[str, type] = {
    "results": pytest_fsstack.Results,
    "test": TestOutcome,
    "chain": pytest_fsstack.ChainResults,
    "looks": Looks,
    "stack": StackInfo,
    "note": Note,
    "sample": Sample,
    "metric": Metric,
    "judgement": Judgement,
    "budget": Budget,
    "verdict": Verdict,
    "estimate": Estimate,
    "derived": Derived,
    "reading": Reading,
    "ratios": Ratios,
    "confirmation": Confirmation,
    "discarded": Discarded,
    "repetition": Repetition,
    "carry_over": CarryOver,
    **{re.sub(r"\B(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(Notice)},
    "difference": Difference,
    "environment": Environment,
    "kernel": Kernel,
    "cpu": Cpu,
    "driver": Driver,
    "device": Device,
    "corpus": Corpus,
}
#: Those that only reports and tables read.
VIEWS: Mapping[str, type] = {"view": pytest_fsstack.View, "grid": pytest_fsstack.Grid, "cell": pytest_fsstack.Cell}


def types_page() -> str:
    """Return docs/results-types.md: a section for each record, then those for tables."""
    records, views = (map(record_section, kinds.items()) for kinds in (RECORDS, VIEWS))
    return "\n".join([RECORDS_HEAD, *records, VIEWS_HEAD, *views])


def record_section(record: tuple[str, type]) -> str:
    """Return the section of a class: its docstring, attributes and methods."""
    name, kind = record
    return f"### {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n{members(name, kind)}"


def tree(thing: Any) -> ast.Module:
    """Return the syntax tree of a module, class or function."""
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def in_cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def pages() -> dict[Path, str]:
    """Return every generated file with its contents."""
    root = Path(__file__).parents[1]
    return {
        root / "docs" / "layers.md": page(),
        root / "docs" / "options.md": options_page(),
        root / "docs" / "command.md": command_page(),
        root / "docs" / "pytest-reference.md": pytest_page(),
        root / "docs" / "workload-reference.md": workload_page(),
        root / "docs" / "results-types.md": types_page(),
    }


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content)
