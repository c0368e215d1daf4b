"""Write docs/layers.md from the layers themselves: ``python docs/generate.py``. A test compares the two."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.needs import DeviceMapper, DeviceNode, KernelFilesystem, Need, Root, Tool
from pytest_fsstack.stack import Layer

HEAD = """\
# Layers

Made from the layers themselves by `docs/generate.py`. A stack names them from the bottom up, with options as keywords:
`luks(key_size=256) | ext4(mount='noatime')`. What a machine lacks is probed, and skipped with the reason;
`pytest --fsstack-doctor` shows it for all of them.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(layer) for layer in BUILT_IN)])


def section(layer: type[Layer]) -> str:
    """One layer: what it is, what it takes and gives, what it needs, its options."""
    takes = " or ".join(kind.kind for kind in layer.takes)
    lines = [f"## {layer.name}", "", inspect.cleandoc(layer.__doc__ or ""), ""]
    lines += [f"Takes a {takes}, gives a {layer.gives.kind}.", ""]
    lines += [f"Example: `{layer.shown()}`", ""]
    if words := list(dict.fromkeys(filter(None, map(need, layer().needs())))):
        lines += [f"Needs {', '.join(words)}.", ""]
    if layer.options():
        hints = typing.get_type_hints(layer)
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


def need(need: Need) -> str | None:
    """What is needed, in a few words; None for what goes without saying."""
    if isinstance(need, Tool):
        return f"`{need.command}` (Debian: {need.package})"
    if isinstance(need, KernelFilesystem):
        return f"{need.name} in the kernel"
    if isinstance(need, DeviceMapper):
        return f"dm-{need.target} in the kernel"
    if isinstance(need, DeviceNode):
        return f"{need.feature} in the kernel"
    return "root" if isinstance(need, Root) else None


if __name__ == "__main__":
    Path(__file__).with_name("layers.md").write_text(page())
