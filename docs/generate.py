"""Write what follows from the code: ``python docs/generate.py``. A test compares.

These are the pages of the reference, and the table of options in README.md: `pages` names them all.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from signal import SIGINT
from typing import Any

import pytest

import pytest_fsstack
from pytest_fsstack import hooks, options, plugin, workloads
from pytest_fsstack.command import COMMANDS, USAGE_ERROR
from pytest_fsstack.judging import bisect, saved
from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.results import Judgement, StackInfo
from pytest_fsstack.judging.sample import Metric, Sample
from pytest_fsstack.judging.verdict import Estimate, Verdict
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.devices import LoopDevice
from pytest_fsstack.machine.needs import Crate, Need, Tool, in_words
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.stack.model import Layer, Stack

HEAD = """\
# Layers

Made from the layers themselves by `docs/generate.py`. A stack names them from the bottom up, with options as keywords:
`luks(key_size=256) | ext4(mount='noatime')`. What a machine lacks is probed, and skipped with the reason;
`pytest --fsstack-doctor` shows it for all of them.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(layer) for layer in BUILT_IN.values())])


def section(layer: type[Layer]) -> str:
    """One layer: what it is, what it takes and gives, what it needs, its options."""
    takes = " or ".join(kind.kind for kind in layer.takes)
    lines = [f"## {layer.name}", "", inspect.cleandoc(layer.__doc__ or ""), ""]
    lines += [f"Takes a {takes}, gives a {layer.gives.kind}.", ""]
    lines += [f"Example: `{layer.example_stack()}`", ""]
    if words := list(dict.fromkeys(filter(None, map(need, layer().needs())))):
        lines += [f"Needs {', '.join(words)}.", ""]
    if lacked := lacks(layer):
        lines += [lacked, ""]
    if layer.options():
        hints = layer.option_types()
        lines += ["| option | default | what |", "|---|---|---|"]
        for name, option in layer.options().items():
            choices = option.metadata.get("choices") or ()
            doc = option.metadata["doc"] + (f" ({', '.join(choices)})" if choices else "")
            kinds = " or ".join(
                kind.__name__ for kind in (typing.get_args(hints[name]) or (hints[name],)) if kind is not type(None)
            )
            lines.append(f"| `{name}` ({kinds}) | `{option.default!r}` | {in_cell(doc)} |")
        lines.append("")
    return "\n".join(lines)


def lacks(layer: type[Layer]) -> str:
    """What its directories need not have, and who says so; empty where they have it all."""
    said = [f"{limit.value} ({source})" for limit, source in layer().limited().items()]
    said += [f"names of more than {layer.name_max} bytes"] if layer.name_max < 255 else []
    return f"May lack: {'; '.join(said)}." if said else ""


def need(need: Need) -> str:
    """What is needed, in a few words; empty for what goes without saying."""
    if isinstance(need, Crate):
        return f"`{need.name}` (`cargo install {need.name}`)"
    return f"`{need.command}` (Debian: {need.package})" if isinstance(need, Tool) else in_words(need)


OPTIONS_HEAD = """\
# Options

Made from `pytest_fsstack/options.py` by `docs/generate.py`. The command line wins over the ini, except that the budgets
of both hold, those of the command line last. A value is checked in the same way wherever it stands, and a name that
begins with `fsstack_` and is no option is an error.
"""
#: Between these lines of README.md stands the table of options.
BEGIN, END = "<!-- made by docs/generate.py -->\n", "<!-- /made -->\n"


def options_page() -> str:
    """docs/options.md: each option with all that there is to say."""
    lines = [OPTIONS_HEAD]
    for option in options.OPTIONS:
        ini = f"In an ini: `{option.ini_name}`." if option.ini else "Only on the command line."
        again = f" It may be {'repeated, or have several lines' if option.ini else 'repeated'}." if option.many else ""
        text = f"{option.description[0].upper()}{option.description[1:]}."
        lines += [f"## `{option.usage}`", "", text, *(["", option.doc] if option.doc else []), "", ini + again, ""]
    return "\n".join(lines)


def options_table() -> str:
    """The table of README.md: a row an option."""
    rows = [
        f"| `{in_cell(option.usage)}` | {in_cell(option.description)} | {'yes' if option.ini else ''} |\n"
        for option in options.OPTIONS
    ]
    return "".join(["| option | meaning | ini |\n|---|---|---|\n", *rows])


def readme(text: str) -> str:
    """README.md with its table of options made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{options_table()}{END}{after}"


COMMAND_HEAD = """\
# The command fsstack

Made by `docs/generate.py`. The command adds nothing that pytest's options cannot do: it is short for them, and pytest
options may stand behind most of its subcommands. Wrong usage is one sentence and exit code 4; a session's exit code is
pytest's. `python -m pytest_fsstack.command` is the same command. `run` on devices, `doctor install` and `cleanup` need
root, the others do not.

| command | what it does | the same without it |
|---|---|---|
"""
COMMAND_EXPLAIN = """
## The commands of a stack

`fsstack stacks explain STACK` shows the commands of one stack. `pytest --fsstack-dry-run` shows those of all stacks of
the selected tests, with what is missing here and how long the session takes. Both run the layers' own code against a
recorder, so what they show is what a session runs. Lines with `#` say what the plugin does without a command. Names in
capitals stand for what is known only at run time: the number of a loop device, a process, a secret.
`--fsstack-device` and `--fsstack-size` may stand behind both.

```console
$ fsstack stacks explain 'ext4 | gocryptfs'
"""
COMMAND_REST = """```

A layer that starts processes by itself, and not by `run`, `mounted` or `served`, cannot be shown: that is an error, and
nothing is started.

## Reports, later

`fsstack report RUN.json --html page.html --csv samples.csv` makes from the file of `--fsstack-json` every report that
the session could have written, also those of other plugins. `--json` writes it anew. Several formats may stand in one
command; one that cannot be written gives exit code 1, and the others are written.

## A file to start from

`fsstack new layer mirror` writes `mirror_layer.py`, `test_mirror.py` and, if there is none, a `conftest.py` that
registers the layer. `fsstack new workload NAME` and `fsstack new scenario NAME` write `test_NAME.py`. They run as
they are in a directory, without root: `pytest test_mirror.py --fsstack-device=dir:.`. A file that exists is never
overwritten.
"""


def command_page() -> str:
    """docs/command.md: the subcommands, and an example of what is run."""
    cells = [
        (f"`{in_cell(command.usage)}`", command.help, f"`{command.same}`" if command.same else "")
        for command in COMMANDS
    ]
    rows = [f"| {' | '.join(row)} |" for row in cells]
    example = explained(Stack.parse("ext4 | gocryptfs", BUILT_IN), LoopDevice(4 << 30))
    return "\n".join([COMMAND_HEAD + "\n".join(rows), COMMAND_EXPLAIN + "\n".join(example.lines), COMMAND_REST])


PYTEST_HEAD = """\
# Fixtures, marks, hooks, exit codes

Made from the code by `docs/generate.py`. [writing-tests.md](writing-tests.md) says how to use them, and
[options.md](options.md) has the options.
"""
MARKS_HEAD = """\
## Marks

Write `@pytest.mark.` before each, on a test, or on a class for all of its tests. `@pytest.mark.benchmark` is that of
pytest-benchmark, and is not needed beside `timed`.
"""
HOOKS_HEAD = """\
## Hooks

For a `conftest.py` at the root of a project, or a pytest plugin. What each function returns is in
[own-layers.md](own-layers.md).
"""
EXIT_HEAD = """\
## Exit codes

| code | of `pytest` with this plugin |
|---|---|
"""
NAMES_HEAD = """\
## What can be imported

From `pytest_fsstack`. Other modules of the package may change in any version, except that the ready-made steps are in
`pytest_fsstack.workloads` ([workload-reference.md](workload-reference.md)).

| name | what |
|---|---|
"""
#: The classes whose objects fixtures give, by the name of the fixture.
GIVEN: Mapping[str, type] = {
    "fsstack": pytest_fsstack.Built,
    "timed": pytest_fsstack.Timed,
    "corpus": pytest_fsstack.Corpus,
}
#: How often there is a fixture, by pytest's name for its scope.
SCOPES = {"function": "each test", "class": "each class, or test outside of one", "session": "the session"}
#: What pytest itself calls them, and what they mean for a session with stacks.
EXIT_CODES: Mapping[int, str] = {
    pytest.ExitCode.OK: "Every selected test passed or was skipped. What could not be decided is skipped without "
    "`--fsstack-strict`, and what could not be built without `--fsstack-missing=fail`.",
    pytest.ExitCode.TESTS_FAILED: "A budget is broken; or a test, the building of a stack or the writing of a report "
    "failed; or nothing was judged or measured in a session that must, such as one with `--fsstack-strict`; or "
    "`--fsstack-doctor` found that something is missing.",
    pytest.ExitCode.INTERRUPTED: "pytest could not collect the tests, or a debugger was left.",
    pytest.ExitCode.INTERNAL_ERROR: "An internal error of pytest or of a plugin.",
    pytest.ExitCode.USAGE_ERROR: "The command line, the ini or a marker is wrong, or a device is refused. Nothing was "
    "run; one line says why.",
    pytest.ExitCode.NO_TESTS_COLLECTED: "No test was selected.",
}
EXIT_REST = """\
| 128 + n | Signal n ended the session ({interrupted}: Ctrl-C). The stacks are taken down and the results written. |

With `--fsstack-exit=bisect` it is a code for `git bisect run` ([bisecting.md](bisecting.md)):

| code | |
|---|---|
| {good} | good: all budgets are kept |
| {bad} | bad: a budget is broken |
| {skip} | skip: that is not known, for whatever reason |
| 128 + n | signal n ended the session, and ends the bisection |

The command `fsstack` has the code of the session that it starts, and {usage} for wrong usage. `fsstack compare` has its
own codes ([over-time.md](over-time.md#runs-that-have-ended)).
"""


def pytest_page() -> str:
    """docs/pytest-reference.md: what pytest sees of the plugin, and what can be imported."""
    codes = "".join(f"| {int(code)} | {text} |\n" for code, text in EXIT_CODES.items())
    rest = EXIT_REST.format(
        **{"interrupted": 128 + SIGINT, "good": bisect.GOOD, "bad": bisect.BAD, "skip": bisect.SKIP},
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
    """A section a fixture: its scope, its docstring, and what can be done with what it gives."""
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
    """A table of the public attributes and methods of a class, as those of the fixture with that name."""
    lines = ["| | |", "|---|---|"]
    (definition,) = (node for node in tree(given).body if isinstance(node, ast.ClassDef))
    source = inspect.getsource(given).splitlines()
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = f"`{in_cell(ast.unparse(node.annotation))}`"
            lines.append(f"| `{name}.{node.target.id}` | {': '.join([kind, *comment_above(source, node.lineno)])} |")
        elif isinstance(node, ast.FunctionDef) and (node.name == "__call__" or not node.name.startswith("_")):
            doc = " ".join((ast.get_docstring(node) or "").split())
            plain = any(ast.unparse(each) in ("property", "staticmethod") for each in node.decorator_list)
            call = "" if plain else arguments(node.args)
            before = "with " if node.name == "__call__" else ""
            method = "" if node.name == "__call__" else f".{node.name}"
            lines.append(f"| `{before}{name}{method}{in_cell(call)}` | {in_cell(doc)} |")
    return "\n".join([*lines, ""])


def comment_above(source: list[str], number: int) -> list[str]:
    """The comment above an attribute in that line, from 1, if it has any."""
    lines = itertools.takewhile(lambda line: line.strip().startswith("#: "), reversed(source[: number - 1]))
    text = " ".join(line.strip().removeprefix("#: ") for line in reversed([*lines]))
    return [in_cell(text)] if text else []


def arguments(given: ast.arguments) -> str:
    """As a call shows them, with defaults and without types."""
    for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
        if argument is not None:
            argument.annotation = None
    words = ast.unparse(given).removeprefix("self").removeprefix(", ")
    # That all which follow are keywords is said by their defaults.
    return f"({words.removeprefix('*, ')})"


def marks() -> Iterator[str]:
    """A line a mark."""
    for marker in plugin.MARKERS:
        usage, _, meaning = marker.partition("): ")
        yield f"- **`{usage})`**: {meaning}."
    yield ""


def hook_sections() -> Iterator[str]:
    """A line a hook: what it returns, and what for."""
    for name, hook in vars(hooks).items():
        if name.startswith("pytest_"):
            yield f"- **`{name}()`** -> `{inspect.signature(hook).return_annotation}`: {inspect.getdoc(hook)}"
    yield ""


def names() -> str:
    """A table of what can be imported from the package."""
    rows = []
    for name in sorted(pytest_fsstack.__all__, key=str.lower):
        found = getattr(pytest_fsstack, name)
        own = inspect.isclass(found) or inspect.isfunction(found)
        doc = (inspect.getdoc(found) or "").partition("\n\n")[0] if own else OTHER_NAMES[name]
        rows.append(f"| `{name}` | {in_cell(' '.join(doc.split()))} |\n")
    return NAMES_HEAD + "".join(rows)


#: What is no class and no function, and so has no docstring.
OTHER_NAMES = {
    "FUSE": "The need of `/dev/fuse`.",
    "Place": "`Block` or `Directory`: what a layer stands on or gives.",
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
# Parameters of the ready-made steps

Made from the steps themselves by `docs/generate.py`; [workloads.md](workloads.md) says which one to take for what. Each
is called as `workloads.NAME(timed, fsstack, ...)` after `from pytest_fsstack import workloads`. Sizes are in bytes.
`cold=False` leaves out the cold start of the timed block. All raise `AssertionError`, with what differs, if a stack did
not do the work, and `CommandError` if a command fails; all skip the test if a tool is not installed.
"""


def workload_page() -> str:
    """docs/workload-reference.md: each ready-made step with its parameters."""
    return "\n".join(
        [WORKLOADS_HEAD, *(workload_section(name, step) for name, step in sorted(workloads.BUILT_IN.items()))]
    )


def workload_section(name: str, step: Callable[..., object]) -> str:
    """One step: what it does, what it needs, its parameters."""
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
    """As it is written, unless that is a name that only the module knows."""
    if default is None:
        return "must be given"
    private = any(isinstance(node, ast.Name) and node.id.startswith("_") for node in ast.walk(default))
    return f"`{value!r}`" if private else f"`{ast.unparse(default)}`"


SCHEMA_HEAD = """\
# Types of the results

Made from the JSON Schema of `--fsstack-json` by `docs/generate.py`; [results.md](results.md) says what the fields mean.
The schema itself (2020-12) is the file `results.schema.json` of the package `pytest_fsstack.judging`. A field that is
not marked as optional is always there. `[]` stands for each item of an array, and `*` for each name of an object.
"""


RECORDS_HEAD = """\
## In Python

The function of a report gets `Results`, that of a table a `View` ([own-layers.md](own-layers.md#helpers)). Both read
these objects. `step`, `stack` and `metric` are names as in the tables:
`chain.median("du", "luks+ext4", "written_bytes")`.
"""
#: The classes whose objects reports and tables read, by the name that stands for an object.
RECORDS: Mapping[str, type] = {
    "results": pytest_fsstack.Results,
    "chain": pytest_fsstack.ChainResults,
    "stack": StackInfo,
    "sample": Sample,
    "metric": Metric,
    "judgement": Judgement,
    "budget": Budget,
    "verdict": Verdict,
    "estimate": Estimate,
    "view": pytest_fsstack.View,
    "grid": pytest_fsstack.Grid,
    "cell": pytest_fsstack.Cell,
}


def schema_page() -> str:
    """docs/results-types.md: the type of every field, an object a section."""
    schema = saved.schema()
    parts = [("the file", schema), *schema["$defs"].items()]
    sections = [schema_section(name, part) for name, part in parts]
    return "\n".join([SCHEMA_HEAD, *sections, RECORDS_HEAD, *map(record_section, RECORDS.items())])


def record_section(record: tuple[str, type]) -> str:
    """One class of which a report gets objects: what it is, and its attributes and methods."""
    name, kind = record
    return f"### {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n{members(name, kind)}"


def schema_section(name: str, part: Mapping[str, Any]) -> str:
    """The fields of an object of the schema, those of the objects in it by their path."""
    lines = [f"## {name}", "", *([part["description"], ""] if name != "the file" and "description" in part else [])]
    lines += ["| field | type | |", "|---|---|---|", *schema_rows("", part), ""]
    return "\n".join(lines)


def schema_rows(prefix: str, part: Mapping[str, Any]) -> Iterator[str]:
    for name, field in part.get("properties", {}).items():
        said = [] if name in part.get("required", ()) else ["optional"]
        said += [field["description"]] if "description" in field else []
        yield f"| `{prefix}{name}` | {schema_type(field)} | {in_cell('; '.join(said))} |"
        yield from schema_rows(f"{prefix}{name}.", field)
        for inner in field.get("anyOf", ()):
            yield from schema_rows(f"{prefix}{name}.", inner)
        for key, inner in (("[]", field.get("items")), (".*", field.get("additionalProperties"))):
            if isinstance(inner, dict):
                yield from schema_rows(f"{prefix}{name}{key}.", inner)


def schema_type(field: Mapping[str, Any]) -> str:
    """In words: what a field may hold."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"]).replace("`None`", "null")
    if "anyOf" in field:
        return " or ".join(map(schema_type, field["anyOf"]))
    if "prefixItems" in field:
        return f"array of {', then '.join(map(schema_type, field['prefixItems']))}"
    kinds = field.get("type", "anything")
    words = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    if isinstance(inner := field.get("items"), dict):
        words = words.replace("array", f"array of {schema_type(inner)}")
    if isinstance(inner := field.get("additionalProperties"), dict):
        words = words.replace("object", f"object of {schema_type(inner)} by name")
    return words


def tree(thing: Any) -> ast.Module:
    """The syntax tree of a module, class or function."""
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def in_cell(text: str) -> str:
    """As a cell of a Markdown table takes it."""
    return text.replace("|", "\\|")


def pages() -> dict[Path, str]:
    """Every file that follows from the code, and what it should contain."""
    root = Path(__file__).parents[1]
    return {
        root / "docs" / "layers.md": page(),
        root / "docs" / "options.md": options_page(),
        root / "docs" / "command.md": command_page(),
        root / "docs" / "pytest-reference.md": pytest_page(),
        root / "docs" / "workload-reference.md": workload_page(),
        root / "docs" / "results-types.md": schema_page(),
        root / "README.md": readme((root / "README.md").read_text()),
    }


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content)
