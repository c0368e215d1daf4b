"""A tree of files twice, as a stack keeps it and as a model has it: what they answer differently.

What is compared is the answer of each call, a result or the class of an error, and at each check all there is to read:
names, contents, sizes, links, modes and attributes.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_fsstack.correctness.model import Facts, Model, difference
from pytest_fsstack.correctness.tree import Tree
from pytest_fsstack.stack.model import Limit

#: Errors that mean the same: which of two reasons is told first is not the same on each filesystem.
_CLASSES = (
    (errno.ENOENT, errno.ENOTDIR, errno.ELOOP),
    (errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.EINVAL, errno.EBUSY),
    (errno.EPERM, errno.EACCES),
    (errno.ENODATA,),
    (errno.ENAMETOOLONG,),
    (errno.ENOSPC, errno.EDQUOT),
)
#: How a filesystem refuses what it does not have.
_REFUSING = {
    *(errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ENODEV, errno.EXDEV, errno.EMLINK),
    # CryFS 0.11, which answers ENOSYS with the wrong sign (its Fuse.cpp), for which libfuse takes ERANGE.
    errno.ERANGE,
}
#: What is said of a stack that cannot go on.
_BROKEN = {errno.EIO, errno.ECONNABORTED, errno.ENOTCONN, errno.EROFS}
#: Calls that, without space, may have written some of a file.
_WRITING = ("write", "append", "write_held", "allocate", "truncate", "truncate_held", "punch")
#: How it says that there is no space.
FULL = {errno.ENOSPC, errno.EDQUOT}

#: How each call may be refused by a layer that says so.
LIMITED: Mapping[str, tuple[Limit, ...]] = {
    "link": (Limit.HARD_LINKS, Limit.HARD_LINKS_ACROSS),
    "symlink": (Limit.SYMBOLIC_LINKS,),
    "set_attribute": (Limit.ATTRIBUTES,),
    "remove_attribute": (Limit.ATTRIBUTES,),
    "allocate": (Limit.ALLOCATION,),
    "punch": (Limit.HOLES,),
    "write_mapped": (Limit.MAPPED_WRITES,),
    "chmod": (Limit.MODES,),
}


class DifferentError(AssertionError):
    """The stack and the model do not agree.

    `kind` is what kind of difference it is, if the comparison can go on without regard to this kind.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(frozen=True)
class Call:
    """One call, as it is made on both."""

    name: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_shown, self.arguments))})"


def _shown(argument: Any) -> str:
    if isinstance(argument, str) and len(argument) > 40:
        return f"{argument[0]!r} * {len(argument)}" if len(set(argument)) == 1 else repr(argument)
    return repr(argument)


@dataclass(frozen=True)
class _Answer:
    value: Any = None
    error: int | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return errno.errorcode.get(self.error, str(self.error))
        return f"{len(self.value):,} bytes" if isinstance(self.value, bytes) else repr(self.value)

    def agrees_with(self, other: _Answer) -> bool:
        if self.error is None or other.error is None:
            return self == other
        return self.error == other.error or any(self.error in same and other.error in same for same in _CLASSES)


def _answer(side: Model | Tree, call: Call) -> _Answer:
    try:
        return _Answer(getattr(side, call.name)(*call.arguments))
    except OSError as error:
        if error.errno is None:
            raise
        return _Answer(error=error.errno)


class Comparison:
    """A tree on a stack and its model. Raises `DifferentError` where they differ; `calls` is what led to it.

    `limits` is what the stack documents not to do, and `name_max` the bytes of its longest names. Where the stack is
    nearly `full`, a call may fail for lack of space; it must then have changed nothing but the part of a file that it
    was writing. Kinds of differences that are known may be `passed_over`. `remount` makes the next reads come from the
    device.
    """

    def __init__(
        self,
        root: Path,
        remount: Callable[[], object],
        limits: Mapping[Limit, str] | None = None,
        name_max: int = 255,
        *,
        full: bool = False,
        passed_over: Collection[str] = (),
    ) -> None:
        self.calls: list[Call] = []
        self.refused = 0
        self.limits, self.name_max, self.full = dict(limits or {}), name_max, full
        self.passed_over = passed_over
        self._remount = remount
        self._model, self._tree = Model(name_max), Tree(root)

    def make(self, call: Call) -> None:
        """Make a call on both, and compare the answers; or one of `check` and `remount`."""
        self.calls.append(call)
        if call.name == "check":
            self._check()
        elif call.name == "remount":
            self._model.let_go()
            self._tree.let_go()
            self._remount()
            self._check("after the remount, ")
        else:
            self._do(call)

    def _do(self, call: Call) -> None:
        answer = _answer(self._tree, call)
        if answer.error in _REFUSING and any(limit in self.limits for limit in LIMITED.get(call.name, ())):
            return
        if self.full and answer.error in FULL:
            self.refused += 1
            self._settle(call)
            return
        expected = _answer(self._model, call)
        if not answer.agrees_with(expected):
            if answer.error is None and expected.error is None:
                raise DifferentError(f"{call}: {_differing(answer.value, expected.value)}")
            kind = "" if answer.error in _BROKEN else f"{call.name}: {answer} instead of {expected}"
            self._differ(f"{call}: {answer} instead of {expected}", kind)

    def dispose(self) -> None:
        """Close everything, and remove the tree as far as that goes: what is damaged may not be removable."""
        with contextlib.suppress(OSError):
            self._tree.let_go()
        self._tree.remove()

    def _check(self, when: str = "") -> None:
        try:
            actual = self._tree.everything()
        except OSError as error:
            raise DifferentError(f"{when}reading all there is: {error.strerror}") from error
        expected = self._model.everything()
        if actual.keys() != expected.keys():
            missing, more = sorted(expected.keys() - actual.keys()), sorted(actual.keys() - expected.keys())
            problems = [f"{_list(missing)} missing"] if missing else []
            problems += [f"{_list(more)} there, though removed or never made"] if more else []
            raise DifferentError(f"{when}{' and '.join(problems)}")
        for path, facts in actual.items():
            expected_facts = expected[path]
            if isinstance(facts, Facts) and isinstance(expected_facts, Facts):
                for part, words in facts.differences(expected_facts):
                    if part != "mode" or Limit.MODES not in self.limits:
                        self._differ(f"{when}{_shown(path)}: {words}", "" if part == "content" else part)
            elif facts != expected_facts:
                raise DifferentError(f"{when}{_shown(path)}: a {facts} instead of a {expected_facts}")

    def _differ(self, message: str, kind: str) -> None:
        if not kind or kind not in self.passed_over:
            raise DifferentError(message, kind)

    def _settle(self, call: Call) -> None:
        """After a call without space: take over what it has written of one file, if that is all it changed."""
        if call.name not in _WRITING:
            return
        place = call.arguments[0]
        before = self._model.content(place)
        actual = self._tree.content(place)
        if actual is None and before is None:
            return
        _answer(self._model, call)
        expected = self._model.content(place)
        if actual is None or expected is None:
            raise DifferentError(f"{call}: without space, the file is gone")
        old = before or b""
        possible = zip(actual, old + bytes(max(0, len(actual) - len(old))), expected)
        if not len(old) <= len(actual) <= len(expected) or any(byte not in either for byte, *either in possible):
            raise DifferentError(
                f"{call}: without space, it changed what it was not to write: {difference(actual, old)}"
            )
        self._model.set_content(place, actual)


def _differing(actual: Any, expected: Any) -> str:
    if isinstance(actual, tuple) and isinstance(expected, tuple) and actual[0] == expected[0]:
        actual, expected = actual[1], expected[1]
    if isinstance(actual, bytes) and isinstance(expected, bytes):
        return difference(actual, expected)
    return f"{actual!r:.60} instead of {expected!r:.60}"


def _list(paths: list[str]) -> str:
    return f"{', '.join(map(_shown, paths[:3]))}{' ...' if len(paths) > 3 else ''}"
