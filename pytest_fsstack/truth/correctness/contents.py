"""A comparison of a stack with a directory in memory. Both get the same calls, and must give the same answers.

After each call, the states of all names and open files are compared too.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import os
import stat
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.truth.correctness.calls import (
    LIBC,
    MODES,
    Other,
    Side,
    answer,
    check,
    content_of,
    shown,
    states,
    summary,
)
from pytest_fsstack.truth.correctness.drawing import PARAMETERS, REMOUNT, Call

#: Classes of equivalent errors. If a call has two errors, filesystems differ in the one that they return.
_CLASSES = (
    (errno.ENOENT, errno.ENOTDIR, errno.ELOOP),
    (errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.EINVAL, errno.EBUSY),
    (errno.EPERM, errno.EACCES),
    (errno.ENOSPC, errno.EDQUOT),
)
#: Errors of a filesystem that does not support a call.
_REFUSING = {
    *(errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ENODEV, errno.EXDEV, errno.EMLINK),
    # CryFS 0.11 returns ENOSYS with the wrong sign (its Fuse.cpp), and libfuse replaces it by ERANGE.
    errno.ERANGE,
}
#: Of these, the errors that say that there is no such call.
_ABSENT = {errno.EOPNOTSUPP, errno.ENOSYS}
#: The size in bytes from which on a file may be too large for a filesystem (EFBIG).
_LARGE = 16 << 30
#: Errors of a filesystem without space.
FULL = {errno.ENOSPC, errno.EDQUOT}
#: Errors of a filesystem whose attributes cannot be as large. The bytes of the values and of the name of an attribute
#: that each filesystem must store are below.
_TOO_LARGE = {*FULL, errno.E2BIG, errno.ERANGE, errno.ENAMETOOLONG, errno.EOVERFLOW}
_VALUES, _NAME = 1000, 100
#: Conditions of calls that are counted.
CONDITIONS = (
    *("refused", "no space", "another user", "at once", "beyond 2 GiB", "beyond 4 GiB", "other case"),
    *("symbolic link", "directory", "1,000 names", "unlinked", "linked", "open", "sparse", "long name", "odd name"),
)
#: Calls that may change a part of a file before they fail for lack of space, with the position of the file's slot.
_WRITING = {"pwrite": 0, "write": 0, "ftruncate": 0, "fallocate": 0, "copy_file_range": 2}

#: The limits that permit a layer to refuse each call.
LIMITED: Mapping[str, tuple[Limit, ...]] = {
    "link": (Limit.HARD_LINKS, Limit.HARD_LINKS_ACROSS),
    "link_fd": (Limit.HARD_LINKS, Limit.HARD_LINKS_ACROSS),
    "symlink": (Limit.SYMBOLIC_LINKS,),
    "setxattr": (Limit.ATTRIBUTES,),
    "getxattr": (Limit.ATTRIBUTES,),
    "listxattr": (Limit.ATTRIBUTES,),
    "removexattr": (Limit.ATTRIBUTES,),
    "setacl": (Limit.ATTRIBUTES,),
    "fallocate": (Limit.ALLOCATION,),
    "mmap_write": (Limit.MAPPED_WRITES,),
    "chmod": (Limit.MODES,),
    "fchmod": (Limit.MODES,),
}


class Weight(enum.IntEnum):
    """The severity of a difference. Reports list the worst first."""

    CONTENTS = 0  # wrong bytes
    NAMES = 1  # wrong names, sizes or kinds of files, and calls that succeed and must not
    UNUSABLE = 2  # a call hangs, or the stack is gone
    ATTRIBUTES = 3  # modes, owners, times and the like, and other answers
    FAILURES = 4  # calls that fail and must not
    REFUSALS = 5  # calls that the stack does not have


#: The weights of wrong parts of a state. All others are attributes.
_PARTS = {"content": Weight.CONTENTS} | dict.fromkeys(("size", "names", "kind", "target"), Weight.NAMES)


def limits_of(call: Call) -> tuple[Limit, ...]:
    """Return the limits of which each permits a layer to refuse a call."""
    punches = call.name == "fallocate" and "PUNCH" in call.arguments[1]
    return (*LIMITED.get(call.name, ()), *((Limit.HOLES,) if punches else ()))


class DifferentError(AssertionError):
    """A difference between the stack and the model. If states differ, `path` has another state than `expected`.

    `what` is the kind of difference, such as "content" or an error. `limits` would permit it, if the layer declared one
    of them. `possible` has the answers and states of each order in which calls of two processes can take effect.
    """

    def __init__(
        self,
        message: str,
        what: str,
        weight: Weight,
        *,
        path: str = "",
        expected: Mapping[str, Any] | None = None,
        possible: Sequence[Sequence[str]] = (),
        limits: Sequence[Limit] = (),
    ) -> None:
        self.what, self.weight, self.limits = what, weight, limits
        self.path, self.expected, self.possible = path, dict(expected or {}), possible
        super().__init__(message)


class Model(Side):
    """A directory in memory (tmpfs), which gives the expected answers."""

    def fallocate(self, slot: int, how: str, offset: int, length: int) -> None:
        """Imitate fallocate by other calls, because tmpfs has only some of its modes."""
        fd, size = self.fd(slot), os.fstat(self.fd(slot)).st_size
        end = offset + length
        check(LIBC.fallocate(fd, MODES["KEEP_SIZE"], ctypes.c_long(offset), ctypes.c_long(length)))
        if "KEEP_SIZE" not in how:
            os.ftruncate(fd, max(size, end))
        if "RANGE" in how or "PUNCH" in how:
            self.put(fd, offset, bytes(max(0, min(end, os.fstat(fd).st_size) - offset)))

    @staticmethod
    def put(fd: int, offset: int, content: bytes) -> None:
        """Write at an offset, also if the descriptor appends."""
        with open(f"/proc/self/fd/{fd}", "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), content, offset)

    def fill(self, leave: int) -> None:
        """Do nothing. Only the stack is filled."""


class Others:
    """The other processes that make calls, each on a stack or on its model. They start when they are first needed."""

    def __init__(self) -> None:
        self._processes: dict[tuple[bool, int], Other] = {}
        self._inside: set[tuple[bool, int]] = set()

    def enter(self, root: Path, model: bool, number: int) -> Other:
        """Return the process of this number, in the directory."""
        key = model, number
        if key not in self._processes:
            self._processes[key] = Other()
        process = self._processes[key]
        if key not in self._inside:
            process.enter(str(root))
            self._inside.add(key)
        return process

    def leave(self) -> None:
        """Let all processes close their files and directories. Forget those that have ended."""
        while self._inside:
            key = self._inside.pop()
            try:
                self._processes[key].enter("")
            except OSError:
                self._processes.pop(key).close()

    def close(self) -> None:
        """End all processes."""
        while self._processes:
            self._processes.popitem()[1].close()
        self._inside.clear()


class Comparison:
    """A directory on a stack and its model. Raises `DifferentError` once they differ. `calls` has all calls so far.

    `limits` are the documented limits of the stack. If the stack is nearly `full`, a call may fail for lack of space.
    Then it must have changed nothing except the range of the file that it was writing. `remount` remounts the stack, so
    the next reads come from the device. A control passes `spoil`, which changes files in the directory before that.
    """

    def __init__(
        self,
        root: Path,
        model: Path,
        remount: Callable[[], object],
        limits: Mapping[Limit, str] | None = None,
        *,
        device: str = "",
        full: bool = False,
        spoil: Callable[[Path], object] | None = None,
        others: Others | None = None,
    ) -> None:
        self.calls: list[Call] = []
        #: The calls that the stack has not refused.
        self._made: list[Call] = []
        #: The model's answer to each call, as text.
        self.answers: list[str] = []
        #: Whether times are compared too.
        self.times = False
        #: The conditions of the last call.
        self.conditions: list[str] = []
        #: How often each call met each condition.
        self.met: Counter[tuple[str, str]] = Counter()
        self.limits, self.full = dict(limits or {}), full
        self._remount, self._spoil = remount, spoil
        self._roots = (root, model)
        for path in self._roots:
            path.mkdir()
            path.chmod(0o777)
        self._stack, self._model = Side("", device), Model("")
        self._others, self._own = others or Others(), others is None
        self._held: list[int] = []
        self.enter()

    def enter(self) -> None:
        """Open both directories. Other users then reach the files through the descriptors."""
        self._held = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in self._roots]
        for side, fd in zip((self._stack, self._model), self._held):
            side.root = f"/proc/self/fd/{fd}"
        os.umask(0o022)

    def leave(self) -> None:
        """Close all files, as unmounting needs it."""
        for side in (self._stack, self._model):
            with contextlib.suppress(OSError):
                side.let_go()
        self._others.leave()
        while self._held:
            os.close(self._held.pop())

    def make(self, *calls: Call) -> None:
        """Make a call on both sides, and compare the answers and states. Or remount, or make several calls at once."""
        if calls == (REMOUNT,):
            self.leave()
            self.spoil()
            self._remount()
            self.remounted()
        elif calls[0].at_once:
            self._make_at_once(calls)
        else:
            self.calls += calls
            if self.times:
                # Two changes within a tick of the clock have the same time.
                time.sleep(0.011)
            self._do(*calls)
            self._check("")

    def exists(self, path: str) -> bool:
        """Return whether a path exists on the model."""
        return os.path.lexists(self._model.at(path))

    def spoil(self) -> None:
        """Change files on the stack alone, in a control."""
        if self._spoil:
            self._spoil(self._roots[0])

    def remounted(self) -> None:
        """Compare the states after a remount."""
        self.calls.append(REMOUNT)
        self.answers.append("done")
        self.conditions = []
        self.enter()
        self._check("after the remount, ")

    def _do(self, call: Call) -> None:
        conditions = self._conditions(call)
        before = self._content(self._model, call) if self.full else None
        actual = self._answer(self._stack, call, call.arguments)
        number = actual.errno if isinstance(actual, OSError) else None
        conditions += [] if number is None else ["no space" if number in FULL else "refused"]
        self.conditions = conditions
        self.met.update((call.name, condition) for condition in ["made", *conditions])
        if number and (self._may_refuse(call, number) or (self.full and number in FULL)):
            self.answers.append(shown(actual))
            if call.name == "open" and call.arguments[0] in self._model.slots:
                self._model.close(call.arguments[0])
            if number in FULL:
                self._settle(call, before)
            return
        arguments = call.arguments
        if self.full and isinstance(actual, int) and call.name in ("pwrite", "write") and 0 < actual < arguments[-2]:
            # There was space for a part of the write.
            arguments = (*arguments[:-2], actual, arguments[-1])
        expected = self._answer(self._model, call, arguments)
        self._made.append(call)
        self.answers.append(shown(expected))
        if not _agree(actual, expected):
            what, weight = _kind_of(actual, expected)
            limits = limits_of(call) if weight is Weight.REFUSALS else ()
            raise DifferentError(f"{call}: {_differing(actual, expected)}", what, weight, limits=limits)

    def _answer(self, side: Side, call: Call, arguments: tuple[Any, ...]) -> Any:
        if not call.process:
            return answer(side, call.name, arguments, call.user)
        model = side is self._model
        other = self._others.enter(self._roots[model], model, call.process)
        other.start([(call.name, arguments, call.user)])
        return other.answers()[0][0]

    # -- two processes at once -----------------------------------------------------------------------------------------

    def _make_at_once(self, calls: Sequence[Call]) -> None:
        """Let two processes make calls at once. Some order must lead the model to the same answers and states."""
        self.calls += calls
        histories = [[call for call in calls if call.process == process] for process in (1, 2)]
        others = [self._others.enter(self._roots[0], False, process) for process in (1, 2)]
        at = time.monotonic_ns() + 200_000
        for other, history in zip(others, histories):
            other.start([(call.name, call.arguments, call.user) for call in history], at)
        all_replies = [other.answers() for other in others]
        self.met.update((call.name, "at once") for call in calls)
        self.met.update((call.name, "made") for call in calls)
        self.conditions = []
        actual, reasons, what, weight = states(self._stack), list[str](), "answers", Weight.ATTRIBUTES
        for order in orders([[(begin, end) for _, begin, end in answers] for answers in all_replies]):
            actual_answers = [all_replies[process][index][0] for process, index in order]
            answers, expected = self._modelled([histories[process][index] for process, index in order], actual_answers)
            unlike = self._unlike(actual, expected)
            if all(map(_agree, actual_answers, answers)):
                if not unlike:
                    return
                reasons.append(f"after calls of two processes at once, {unlike[0]}")
                what, weight = unlike[2], _PARTS.get(unlike[2], Weight.ATTRIBUTES)
        answers = [answer for replies in all_replies for answer, *_ in replies]
        texts = (f"{call}: {shown(answer)}" for call, answer in zip([*histories[0], *histories[1]], answers))
        reasons.append(f"no order of the calls of two processes explains the answers {', '.join(texts)}")
        raise DifferentError(reasons[0], what, weight, possible=self._possible(histories))

    def _modelled(
        self, calls: Sequence[Call], actual_answers: Sequence[Any] = ()
    ) -> tuple[list[Any], dict[str, dict[str, Any]]]:
        """Make calls of several processes on a new model. Return the answers and states.

        Calls that the stack was allowed to refuse are left out.
        """
        root = self._roots[1].with_name(f"{self._roots[1].name}-order")
        root.mkdir()
        root.chmod(0o777)
        sides, answers = [Model(str(root)) for _ in range(3)], []
        try:
            for call in self._made:
                answer(sides[call.process], call.name, call.arguments)
            for index, call in enumerate(calls):
                actual = actual_answers[index] if actual_answers else None
                if isinstance(actual, OSError) and actual.errno and self._may_refuse(call, actual.errno):
                    answers.append(actual)
                else:
                    answers.append(answer(sides[call.process], call.name, call.arguments))
            return answers, states(sides[0])
        finally:
            for side in sides:
                side.let_go()
            _remove(Side(str(root)), "")

    def _possible(self, histories: Sequence[Sequence[Call]]) -> list[list[str]]:
        """Return, for each order of the calls, the answers by process and a checksum of the states."""
        possible = []
        for order in orders([[(0, 1)] * len(history) for history in histories]):
            answers, expected = self._modelled([histories[process][index] for process, index in order])
            by_place = dict(zip(order, map(shown, answers)))
            possible.append([*(by_place[place] for place in sorted(by_place)), summary(expected)])
        return possible

    def _may_refuse(self, call: Call, number: int) -> bool:
        """Whether a refusal is a declared limit, or the manual of the call makes the feature optional."""
        if call.name in ("setxattr", "getxattr", "removexattr") and number in _TOO_LARGE and self._is_large(call):
            return True
        if number == errno.EFBIG:
            parameters = dict(zip(PARAMETERS.get(call.name, ()), call.arguments))
            return any(
                type(parameters.get(key)) is int and parameters[key] >= _LARGE for key in ("offset", "to", "size")
            )
        if number not in _REFUSING:
            return False
        if call.name == "open" and "TMPFILE" in call.arguments[2]:
            return number == errno.EOPNOTSUPP
        if call.name == "renameat2" and number == errno.EINVAL:
            return True
        if call.name == "fallocate" and "RANGE" in call.arguments[1] and number in (errno.EOPNOTSUPP, errno.ENOSYS):
            return True
        return any(limit in self.limits for limit in limits_of(call))

    def _is_large(self, call: Call) -> bool:
        """Whether a filesystem need not store the name or value of an attribute, or all values of its file."""
        path, name, *further = call.arguments
        length = further[0] if further else 0
        with contextlib.suppress(OSError):
            length += sum(len(self._model.getxattr(path, other)) for other in self._model.listxattr(path))
        return bool((further and length > _VALUES) or len(name) > _NAME)

    def dispose(self) -> None:
        """Close everything, and remove both directories. Damaged files that cannot be removed stay."""
        self.leave()
        if self._own:
            self._others.close()
        for path in self._roots:
            _remove(Side(str(path)), "")

    def _check(self, when: str) -> None:
        try:
            actual = states(self._stack, self.times)
        except OSError as error:
            raise DifferentError(
                f"{when}reading all there is: {error.strerror}", f"unreadable, {shown(error)}", Weight.NAMES
            ) from error
        expected = states(self._model, self.times)
        if unlike := self._unlike(actual, expected):
            words, path, part = unlike
            weight = _PARTS.get(part, Weight.ATTRIBUTES)
            raise DifferentError(f"{when}{words}", part, weight, path=path, expected=expected[path])

    def _unlike(
        self, actual: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Mapping[str, Any]]
    ) -> tuple[str, str, str] | None:
        """Return the worst difference of two states: as text, the path, and the part of the state. None if equal."""
        unlike = []
        for path, facts in expected.items():
            if path not in actual:
                unlike.append((f"{path!r} is missing", path, "names"))
                continue
            for part in {**facts, **actual[path]}:
                one, other = actual[path].get(part), facts.get(part)
                if one == other or (part == "mode" and Limit.MODES in self.limits):
                    continue
                if part == "content" and actual[path].get("size") != facts.get("size") and _begin_alike(one, other):
                    # It is the size that is wrong.
                    continue
                words = f"{part} {_differing(one, other)}" if part != "inode" else _of_inode(path, actual, expected)
                unlike.append((f"{repr(path) if path else 'the directory'}: {words}", path, _part_kind(part)))
        return min(unlike, key=lambda item: _PARTS.get(item[2], Weight.ATTRIBUTES), default=None)

    def _content(self, side: Side, call: Call) -> bytes | None:
        """Return the content of the file that a call writes to, None if the call does not write."""
        if call.name not in _WRITING:
            return None
        fd = side.slots.get(call.arguments[_WRITING[call.name]])
        return None if fd is None else content_of(fd, os.fstat(fd).st_size)

    def _settle(self, call: Call, before: bytes | None) -> None:
        """Copy the partial write of a call without space to the model. Raises `DifferentError` for other changes."""
        if before is None:
            return
        # A failed ftruncate of Btrfs leaves zeros in the cache, which do not reach the disk.
        os.posix_fadvise(self._stack.fd(call.arguments[_WRITING[call.name]]), 0, 0, os.POSIX_FADV_DONTNEED)
        actual = self._content(self._stack, call)
        answer(self._model, call.name, call.arguments, call.user)
        expected = self._content(self._model, call)
        assert actual is not None
        assert expected is not None
        shortest, longest = sorted(map(len, (before, expected)))
        # What was to be cut off may be zero. Btrfs clears the rest of a block before it notices that it has no space.
        possible = zip(actual, *(content + bytes(max(0, len(actual) - len(content))) for content in (before, expected)))
        if not shortest <= len(actual) <= longest or any(byte not in either for byte, *either in possible):
            words = difference(actual, before)
            text = f"{call}: without space, it changed what it was not to write: {words}"
            raise DifferentError(text, "content", Weight.CONTENTS)
        fd = self._model.fd(call.arguments[_WRITING[call.name]])
        os.ftruncate(fd, len(actual))
        self._model.put(fd, 0, actual)

    def _conditions(self, call: Call) -> list[str]:
        """Return the conditions that a call meets, as the model shows them before the call."""
        parameters = dict(zip(PARAMETERS.get(call.name, []), call.arguments))
        conditions = {"another user"} if call.user else set()
        farthest = max(
            (parameters[key] for key in ("offset", "to", "size") if type(parameters.get(key)) is int), default=0
        )
        conditions |= {f"beyond {gib} GiB" for gib in (2, 4) if farthest >= gib << 30}
        slots: list[int] = [
            self._model.slots.get(parameters[key], -1) for key in ("slot", "source") if key in parameters
        ]
        places: list[str | int] = [
            self._model.at(parameters[key]) for key in ("path", "old", "new") if key in parameters
        ]
        conditions |= {"other case" for place in places if _has_other_case(str(place))}
        opened = {os.fstat(fd).st_ino for fd in self._model.slots.values()}
        for place in places + slots:
            with contextlib.suppress(OSError):
                status = os.fstat(place) if isinstance(place, int) else os.lstat(place)
                name = str(place).rpartition("/")[2]
                tests = {
                    "symbolic link": stat.S_ISLNK(status.st_mode),
                    "directory": stat.S_ISDIR(status.st_mode),
                    "1,000 names": stat.S_ISDIR(status.st_mode) and status.st_size > 10_000,
                    "unlinked": status.st_nlink == 0,
                    "linked": status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode),
                    "open": place in places and status.st_ino in opened,
                    "sparse": status.st_blocks * 512 < status.st_size and stat.S_ISREG(status.st_mode),
                    "long name": len(name) > 100,
                    "odd name": not name.isascii(),
                }
                conditions |= {condition for condition, met in tests.items() if met}
        return [*conditions]


def _has_other_case(path: str) -> bool:
    """Whether the directory has another name that differs from this one only in case or in the form of letters."""
    directory, _, name = path.rpartition("/")

    def folded(text: str) -> str:
        return unicodedata.normalize("NFC", text).casefold()

    try:
        names = os.listdir(directory) if len(name) <= 40 else []
    except OSError:
        return False
    return any(other != name and folded(other) == folded(name) for other in names[:100])


def orders(times: Sequence[Sequence[tuple[int, int]]]) -> Iterator[list[tuple[int, int]]]:
    """Yield the orders in which calls of processes may take effect, as lists of process and number.

    `times` has the begin and end of each call, by process. A call takes effect after all calls that ended before it
    began.
    """
    if not any(times):
        yield []
    for process, (first, *later) in ((process, calls) for process, calls in enumerate(times) if calls):
        first_of_others = [calls[0] for other, calls in enumerate(times) if calls and other != process]
        if all(end >= first[0] for _, end in first_of_others):
            remaining = [later if other == process else calls for other, calls in enumerate(times)]
            for order in orders(remaining):
                yield [(process, 0), *((other, index + (other == process)) for other, index in order)]


def _remove(side: Side, path: str) -> None:
    """Remove a directory, as far as possible. Damaged listings may lack names, repeat them, or be endless."""
    with contextlib.suppress(OSError):
        os.chmod(side.at(path), 0o700)
        for name in side.readdir(path):
            inner = f"{path}/{name[:-4]}"
            with contextlib.suppress(OSError):
                _remove(side, inner) if stat.S_ISDIR(os.lstat(side.at(inner)).st_mode) else side.unlink(inner)
        os.rmdir(f"{side.root}/{path}")


def _agree(actual: Any, expected: Any) -> bool:
    if not isinstance(actual, OSError) or not isinstance(expected, OSError):
        return bool(type(actual) is type(expected) and actual == expected)
    same = {actual.errno, expected.errno}
    return len(same) == 1 or any(same <= {*numbers} for numbers in _CLASSES)


def _begin_alike(one: Any, other: Any) -> bool:
    """Whether two contents are equal up to the end of the shorter one."""
    return isinstance(one, bytes) and isinstance(other, bytes) and (one.startswith(other) or other.startswith(one))


def _part_kind(part: str) -> str:
    """Return the kind of a part of a state: one for all extended attributes, and one for both ACLs."""
    return "attribute" if "." in part else part.partition(" ")[0]


def _of_inode(path: str, actual: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe an inode number that does not show which names are of one file."""
    for other in sorted(expected.keys() - {path}):
        is_one = actual[path].get("inode") == actual.get(other, {}).get("inode")
        if is_one != (expected[path].get("inode") == expected[other].get("inode")):
            which = "file" if is_one else "name of this file"
            return f"its inode number is {'' if is_one else 'not '}that of {other!r}, another {which}"
    return "its inode number differs"


def _kind_of(actual: Any, expected: Any) -> tuple[str, Weight]:
    """Return the kind and the weight of an answer that differs."""
    if isinstance(actual, OSError):
        instead = f" instead of {shown(expected)}" if isinstance(expected, OSError) else ""
        refused = not instead and actual.errno in _ABSENT
        return f"{shown(actual)}{instead}", Weight.REFUSALS if refused else Weight.FAILURES
    if isinstance(expected, OSError):
        return f"no {shown(expected)}", Weight.NAMES
    if isinstance(actual, bytes):
        return "content", Weight.CONTENTS
    return ("names", Weight.NAMES) if isinstance(actual, list) else ("answer", Weight.ATTRIBUTES)


def difference(actual: bytes, expected: bytes) -> str:
    """Describe the first difference of two contents, and their sizes if these differ."""
    at = next((index for index, (one, two) in enumerate(zip(actual, expected)) if one != two), None)
    problems = [] if len(actual) == len(expected) else [f"{len(actual):,} bytes instead of {len(expected):,}"]
    if at is not None:
        count = sum(one != two for one, two in zip(actual, expected))
        problems.append(f"{count:,} wrong bytes from {at:,} on (found {actual[at]:#x}, not {expected[at]:#x})")
    return ", ".join(problems)


def _differing(actual: Any, expected: Any) -> str:
    if isinstance(actual, bytes) and isinstance(expected, bytes):
        return difference(actual, expected)
    if isinstance(actual, list) and isinstance(expected, list):
        missing, more = Counter(expected) - Counter(actual), Counter(actual) - Counter(expected)
        return " and ".join(
            f"{counter.total()} {words} ({min(counter)[:40]!r} ...)"
            for counter, words in ((missing, "missing"), (more, "too many"))
            if counter
        )
    return f"{shown(actual)} instead of {shown(expected)}"
