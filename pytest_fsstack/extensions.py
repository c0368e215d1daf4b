"""Parts of other packages, which attach by entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def attach(group: str, use: Callable[[str, Any], object]) -> Iterator[str]:
    """Load each entry point of a group, and call `use` with its name and object.

    Yield a message for each that fails, whatever its code raises. The others are attached all the same.
    """
    for entry in entry_points(group=group):
        try:
            use(entry.name, entry.load())
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            yield _failure(entry, error)


def _failure(entry: EntryPoint, error: BaseException) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an installed package"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        f"{package}: its entry point {entry.name} = {entry.value} (group {entry.group}) cannot be used: {what}. Update "
        "or uninstall the package"
    )
