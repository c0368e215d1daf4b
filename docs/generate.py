"""Write what follows from the code: ``python docs/generate.py``. A test compares.

These are docs/layers.md, docs/options.md, docs/command.md, and the table of options in README.md.
"""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

from pytest_fsstack import options
from pytest_fsstack.command import COMMANDS
from pytest_fsstack.explain import explained
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.devices import LoopDevice
from pytest_fsstack.machine.needs import Need, Tool, in_words
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
    if layer.options():
        hints = layer.option_types()
        lines += ["| option | default | what |", "|---|---|---|"]
        for name, option in layer.options().items():
            choices = option.metadata.get("choices") or ()
            doc = option.metadata["doc"] + (f" ({', '.join(choices)})" if choices else "")
            kinds = " or ".join(
                kind.__name__ for kind in (typing.get_args(hints[name]) or (hints[name],)) if kind is not type(None)
            )
            lines.append(f"| `{name}` ({kinds}) | `{option.default!r}` | {doc.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


def need(need: Need) -> str:
    """What is needed, in a few words; empty for what goes without saying."""
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
        f"| `{option.usage.replace('|', chr(92) + '|')}` | {option.description} | {'yes' if option.ini else ''} |\n"
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
pytest's. `python -m pytest_fsstack.command` is the same command.

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

    $ fsstack stacks explain 'ext4 | gocryptfs'
"""
COMMAND_REST = """
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
        (f"`{command.usage.replace('|', chr(92) + '|')}`", command.help, f"`{command.same}`" if command.same else "")
        for command in COMMANDS
    ]
    rows = [f"| {' | '.join(row)} |" for row in cells]
    example = explained(Stack.parse("ext4 | gocryptfs", BUILT_IN), LoopDevice(4 << 30))
    lines = [f"    {line}".rstrip() for line in example.lines]
    return "\n".join([COMMAND_HEAD + "\n".join(rows), COMMAND_EXPLAIN + "\n".join(lines), COMMAND_REST])


def pages() -> dict[Path, str]:
    """Every file that follows from the code, and what it should contain."""
    root = Path(__file__).parents[1]
    return {
        root / "docs" / "layers.md": page(),
        root / "docs" / "options.md": options_page(),
        root / "docs" / "command.md": command_page(),
        root / "README.md": readme((root / "README.md").read_text()),
    }


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content)
