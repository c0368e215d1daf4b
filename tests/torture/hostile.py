"""Texts and files that mean harm, given to what reads them: ``python -m tests.torture.hostile SEED COUNT DIRECTORY``.

A process of its own, because it watches itself: once it has begun, each command that it runs and each file that it
changes outside of the directory is noted (`sys.addaudithook`), and that cannot be undone. It prints a JSON object: how
many cases of each kind there were, and what was wrong.
"""

from __future__ import annotations

import copy
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_fsstack.devices import parse_device
from pytest_fsstack.judging import conditions
from pytest_fsstack.kernels import packages
from pytest_fsstack.kernels.images import KernelError, resolve
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, journal
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.options import OPTIONS, labels
from pytest_fsstack.options.budgets import BudgetError, parse as parse_budget, rules
from pytest_fsstack.over_time import comparison, history
from pytest_fsstack.over_time.text import lines as past_lines
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import Results
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.report import BUILT_IN as REPORTS
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.spec import SpecError
from pytest_fsstack.units import parse_size
from pytest_fsstack.workloads import jobfile
from pytest_fsstack.workloads.data.archive import CorpusError
from pytest_fsstack.workloads.data.corpus import users_corpus
from tests.chains import a_chain
from tests.unit.kernels import test_packages as hostile_packages

#: Seconds after which a case counts as hung.
_LIMIT = 20.0
#: Tools that unpack what the user has given as an archive, and that the plugin runs for that.
_UNPACK = frozenset({"gzip", "bzip2", "xz", "zstd", "dpkg-deb", "depmod"})

MARKUP = "<script>torture()</script>"
ESCAPE = "\x1b[31mtorture\x1b]0;torture\x07"
WORDS = (
    *("", " ", "\0", "\n", "\r\n", "\x1b[2J", "\u2028", "\u202etxt", "\ud800", "\U0001f4a9", "\x7f", "a" * 5000),
    *("../../../../etc/passwd", "/etc/passwd", "/dev/sda", "/proc/self/fd/0", "$(touch torture)", "`touch torture`"),
    *("; touch torture", "| touch torture", "&& touch torture", "%s%n%x", "{0.__class__}", "{{7*7}}", "${HOME}"),
    *("nan", "inf", "-inf", "1e999", "-1", "0", "9" * 400, "0x10", "1_000", "٣", "1e-400", "--help", "-o", "*", "?[a-"),
    *(MARKUP, '"><img src=x onerror=torture()>', ESCAPE, "=cmd|' /C torture'!A0", "| a | b |\n|---|---|", "~root"),
    *("](javascript:x)", "(" * 300, "[" * 3000, "{'a':" * 200, "ext4(" * 99, "1+" * 2000 + "1", "é" * 3),
    *("__import__('os').system('touch torture')", "'", '"', "\\", "'''", "#", ",", "=", ":", "|", "**{}", "*a"),
    *("lambda: 0", "f'{1}'", "b'x'", "None", "...", "True"),
)
_SPECS = (
    *("ext4", "luks | ext4", "named = luks(cipher='aes-xts-plain64', key_size=512) | ext4(mount='noatime')"),
    *("ext4 | gocryptfs(xchacha=True)", "zfs(compress='gzip-6', mkfs='-O recordsize=16K')", "lvm | dmcrypt | xfs"),
    *("ext4 | overlay(lower='/usr')", "raid | ext4", "btrfs(compress='zstd:3')", "ext4 | loop(size='16M') | ext2"),
)
_BUDGETS = ("30%", "luks*: 30%", "luks*: written_bytes 50%", "ext4: seconds <= 2.5", "*: mib >= 1e3")
_TEXTS = (
    *(*_SPECS, *_BUDGETS),
    *("512M", "4G", "loop", "ram", "dir:/tmp", "/dev/null", "load<2", "a=b", "host", "json=x.json"),
)


class Wrong(Exception):  # noqa: N818 - a finding
    """What a case did that it must not."""


class TimeUp(BaseException):
    """A case did not come to its end."""


def mutated(draw: random.Random, text: str) -> str:
    """The text with some of it gone, doubled, exchanged, or with something nasty in it."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        start = draw.randrange(len(text) + 1)
        end = min(len(text), start + draw.choice((0, 0, 1, 2, 8)))
        sign = draw.choice("|()=',\"[]{}\\%*:")
        middle = draw.choice((draw.choice(WORDS), text[start:end] * 2, chr(draw.randrange(0x250)), "", sign))
        text = text[:start] + middle + text[end:]
    return text


def text_of(draw: random.Random) -> str:
    return draw.choice(WORDS) if draw.random() < 0.2 else mutated(draw, draw.choice(_TEXTS))


# -- the kinds of cases ------------------------------------------------------------------------------------------------


def spec(draw: random.Random, here: Path) -> None:
    text = mutated(draw, draw.choice(_SPECS))
    try:
        stack = Stack.parse(text, BUILT_IN)
    except SpecError as error:
        # It is shown to people: it must be text.
        str(error)
        return
    if Stack.parse(str(stack), BUILT_IN) != stack:
        raise Wrong(f"another stack when it is read again: {stack}")
    if any(ord(letter) < 32 or letter in "|@/ " for letter in stack.id):
        raise Wrong(f"its id is {stack.id!r}")


def reaching(draw: random.Random, here: Path) -> None:
    """An option that leads out of the stack, in one of the ways in which tools take a path."""
    paths = (str(here / "outside"), "/etc/passwd", "/dev/loop0", "../outside", "./outside", "/nowhere/at/all")
    forms = ("{}", "-d {}", "-O journal={}", "a,{}", "a={},b", "-l{}", "'{}'", "x:{}", "-J device={}", "({})")
    options = ("ext4 mkfs", "ext4 mount", "xfs mkfs", "btrfs mkfs", "btrfs mount", "zfs mkfs")
    target, form = draw.choice(paths), draw.choice(forms)
    layer, option = draw.choice(options).split()
    before, after = (mutated(draw, "noatime").replace("\0", "") for _ in range(2)) if draw.random() < 0.3 else ("", "")
    value = f"{before.strip()} {form.format(target)} {after.strip()}".strip()
    try:
        Stack.parse(f"{layer}({option}={value!r})", BUILT_IN)
    except SpecError:
        return
    raise Wrong(f"accepted: {layer}({option}={value!r})")


#: Words that look harmless, where links of these names are in the directory, or that a tool obeys without any.
_TRAPS = (
    ("btrfs", "mkfs", "-d raid1 -m raid1 subvol=x"),
    ("xfs", "mkfs", "-l logdev=subvol=x,size=64m"),
    ("xfs", "mount", "logdev=subvol=x"),
    ("btrfs", "mount", "device=subvol=x"),
    ("btrfs", "mkfs", "--rootdir=disk"),
    ("ext4", "mkfs", "-qcdisk"),
    ("ext4", "mkfs", "-z disk"),
    ("ext4", "mkfs", "-qzdisk"),
    ("overlay", "mount", "upperdir=upper/../../.."),
    ("overlay", "mount", "lowerdir=/etc"),
    ("overlay", "mount", "workdir=../disk"),
    ("gocryptfs", "mount", "-extpass /bin/sh"),
    ("gocryptfs", "mount", "-cpuprofile disk"),
    ("gocryptfs", "mount", "-ctlsock disk"),
    ("gocryptfs", "mount", "-trace=disk"),
    ("encfs", "mount", "--extpass=touch"),
)


def traps(draw: random.Random, here: Path) -> None:
    for name in "subvol=x", "disk", "isk":
        if not os.path.lexists(here / name):
            (here / name).symlink_to("/dev/loop0")
    layer, option, trap = draw.choice(_TRAPS)
    text = f"{layer}({option}={trap!r})"
    before = draw.choice(("", "", "noatime,"))
    if before and option == "mount" and layer in ("xfs", "btrfs", "overlay"):
        text = f"{layer}({option}={before + trap!r})"
    try:
        Stack.parse(text if layer in ("btrfs", "xfs", "ext4") else f"ext4 | {text}", BUILT_IN)
    except SpecError as error:
        str(error)
        return
    raise Wrong(f"accepted: {text}")


def budgets(draw: random.Random, here: Path) -> None:
    text = mutated(draw, draw.choice(_BUDGETS))
    with allowed(BudgetError):
        parse_budget(text)
    value = draw.choice(
        (text, draw.choice(WORDS), {text: text}, {1: 2}, [text], None, True, float("nan"), 1e308, -5, {})
    )
    with allowed(BudgetError):
        given = {draw.choice(("overhead", "limit", "metric", "xfail", text)): value for _ in range(draw.randint(0, 3))}
        rules(*([value] * draw.randint(0, 2)), **given)


def options(draw: random.Random, here: Path) -> None:
    """What stands in an ini or on the command line."""
    option, text = draw.choice(OPTIONS), text_of(draw)
    with allowed(ValueError):
        option.read(text)
    with allowed(ValueError):
        parse_size(text)
    with allowed(ValueError):
        parse_device(text, size=1 << 20, overwrite=())
    with allowed(ValueError):
        labels.parse(text)
    with allowed(ValueError):
        conditions.parse(text)
    with allowed(KernelError, ValueError):
        if not os.path.isfile(text):
            resolve(text, here / "cache")


def results(draw: random.Random, here: Path) -> None:
    """JSON to compare, to report and to keep a history of."""
    document = _spoiled(draw, json.loads(saved.dumps(_valid())))
    text = json.dumps(document)
    if draw.random() < 0.3:
        text = mutated(draw, text)
    try:
        found = saved.loads(text)
    except saved.FormatError:
        return
    with allowed(ValueError):
        shown = comparison.compare([found], [_valid()], limit=0.05, alpha=0.05, session=False)
        no_escape("\n".join(past_lines(shown, [found], [_valid()])))
    for name in ("markdown", "html", "csv", "tables", "openmetrics", "json", "lava", "ktap"):
        with allowed(ValueError):
            harmless(name, REPORTS[name](found))


def journals(draw: random.Random, here: Path) -> None:
    """What a session has left, or somebody who can write there: nothing is undone that is not known."""
    directory = here / "journals"
    directory.mkdir(mode=0o700, exist_ok=True)
    entry = {"entry": 1, "kind": "thing", "module": "here", "facts": {"path": "/etc/passwd", "number": 3}}
    owner = {"pid": 2**22 - 1, "start": 5, "boot": "0", "pid_namespace": os.readlink("/proc/self/ns/pid")}
    lines: list[Any] = [{"session": owner}, entry, {"note": 1, "facts": {}}]
    text = "".join(json.dumps(_spoiled(draw, line) if draw.random() < 0.7 else line) + "\n" for line in lines)
    if draw.random() < 0.4:
        text = mutated(draw, text)
    path = directory / f"{2**22 - 1}-torture"
    path.write_bytes(text.encode(errors="surrogatepass"))

    def undo(machine: Machine, facts: journal.Facts) -> str:
        journal.text(facts, "path")
        return "undone"

    thing = journal.Kind("thing", lambda machine, facts: True, undo, outlives_boot=True)
    report = journal.cleanup(directory, RealMachine(), lambda: {"thing": thing})
    if not isinstance(report.undone + report.left, list):
        raise Wrong("no lines")
    path.unlink(missing_ok=True)


def histories(draw: random.Random, here: Path) -> None:
    path = here / "history.jsonl"
    lines = [saved.line(_valid()) for _ in range(2)]
    text = mutated(draw, "\n".join(lines) + "\n")
    path.write_bytes(text.encode(errors="surrogatepass"))
    content = history.read(path)
    no_escape("\n".join(content.problems))


def linked_histories(draw: random.Random, here: Path) -> None:
    """The history, or what is cut off from it, is a link of somebody else's."""
    path = here / "linked" / "history.jsonl"
    path.parent.mkdir(exist_ok=True)
    line = saved.line(_valid()) + "\n"
    secret = draw.choice(("untouched", line, line + line[: draw.randrange(len(line))]))
    target = here / "outside"
    target.write_text(secret)
    name = draw.choice((path, history.aside_of(path)))
    if name != path:
        path.write_text(line + line[: draw.randrange(1, len(line) - 1)])
    how = draw.choice((name.symlink_to, name.hardlink_to) if name == path else (name.symlink_to,))
    how(target)
    try:
        with allowed(OSError, ValueError):
            history.append(path, line.strip())
        if target.read_text() != secret and how == name.symlink_to:
            raise Wrong("a history that is a link was followed elsewhere")
    finally:
        target.unlink()
        target.write_text("untouched")
        for file in path.parent.iterdir():
            file.unlink()


_SUFFIXES = ("", ".gz", ".xz", ".bz2", ".zst")
_KINDS_OF_FILES = (hostile_packages.FILE, hostile_packages.LINK, hostile_packages.HARD_LINK, hostile_packages.FIFO)


def kernels(draw: random.Random, here: Path) -> None:
    """A package of a kernel whose members lead elsewhere."""
    inside = "boot", "./boot/vmlinuz-6.1", "lib/modules/6.1/x.ko", "boot/x"
    names = (*inside, "/outside", "../outside", "a/../../outside", str(here / "outside"))
    targets = (str(here / "outside"), str(here), "..", "../../outside", "/etc", "boot/vmlinuz-6.1", "x" * 300)
    entries = []
    for _ in range(draw.randint(1, 6)):
        kind = draw.choice((*_KINDS_OF_FILES, hostile_packages.DIRECTORY, hostile_packages.DEVICE))
        content = draw.choice(targets).encode() if kind in (0, hostile_packages.LINK) else b"MZ" + bytes(600)
        entries.append((draw.choice(names), kind, draw.choice((0o644, 0o6755)), content))
    path = here / f"linux-{draw.randrange(2**60)}.deb"
    with _watching(False):
        data = hostile_packages.deb(hostile_packages.tar(entries), draw.choice(_SUFFIXES))
    if draw.random() < 0.2:
        start = draw.randrange(len(data))
        data = data[:start] + draw.randbytes(draw.randint(0, 90)) + data[start + draw.randint(0, 90) :]
    path.write_bytes(data)
    try:
        with allowed(KernelError):
            resolve(str(path), here / "kernels")
    finally:
        path.unlink()
    if (here / "outside").read_text() != "untouched":
        raise Wrong("unpacking a kernel wrote elsewhere")


_FIO = "[global]\nsize=1M\nrw=randread\n[job]\nbs=4k\n"
_FIO_LINES = (
    *("filename={}", "directory={}", "read_iolog={}", "write_bw_log={}", "include {}", "exec_prerun=touch torture"),
    *("exec_postrun=touch {}", "ioengine=net", "ioengine=external:{}", "filename_format={}", "opendir={}"),
    "aux-path={}",
)


def fio_jobs(draw: random.Random, here: Path) -> None:
    """A file for fio that names files elsewhere, or runs programs."""
    form = draw.choice(_FIO_LINES)
    # Only names of files and their directories are several with colons between.
    several = ("a:/etc/x",) if form.startswith(("filename={", "directory=")) else ()
    line = form.format(draw.choice((str(here / "outside"), "/dev/loop0", "../outside", *several)))
    lines = _FIO.splitlines()
    lines.insert(draw.randrange(1, len(lines) + 1), draw.choice(("", " ", "\t")) + line)
    path = here / "job.fio"
    path.write_text("\n".join(lines) + "\n")
    try:
        jobfile.check(path, here / "stack", {})
    except jobfile.JobFileError as error:
        str(error)
        return
    raise Wrong(f"accepted: a job with {line}")


def corpora(draw: random.Random, here: Path) -> None:
    """Archives whose members lead elsewhere; what is accepted is unpacked, and stays where it is unpacked."""
    path = here / f"corpus-{draw.randrange(2**60)}.tar"
    kind = draw.choice(("w", "w", "w:gz", "w:bz2", "w:xz"))
    with tarfile.open(str(path), kind) as archive:  # type: ignore[call-overload]
        for number in range(draw.randint(0, 4)):
            archive.addfile(*_member(draw, here, f"file-{number}"))
    data = path.read_bytes()
    if draw.random() < 0.3 and data:
        start = draw.randrange(len(data))
        data = data[:start] + draw.randbytes(draw.randint(0, 600)) + data[start + draw.randint(0, 600) :]
        path.write_bytes(data[: draw.randrange(len(data) + 1)] if draw.random() < 0.3 else data)
    try:
        users_corpus(path, here / "cache")
    except CorpusError as error:
        str(error).encode(errors="replace")
        return
    finally:
        if not path.exists():
            raise Wrong("the archive is gone")
    try:
        _unpacked(path, here)
    finally:
        path.unlink()


def _unpacked(path: Path, here: Path) -> None:
    target = here / "unpacked"
    with _watching(False):
        subprocess.run(["rm", "-rf", target], check=True)
        target.mkdir()
        subprocess.run(["tar", "-xf", path, "-C", target], capture_output=True, timeout=_LIMIT)
    if (here / "outside").read_text() != "untouched" or (here / "torture").exists():
        raise Wrong("unpacking it wrote elsewhere")
    for parent, _, files in os.walk(target):
        for name in files:
            mode = os.lstat(os.path.join(parent, name)).st_mode
            if mode & 0o170000 in (0o060000, 0o020000):
                raise Wrong(f"unpacking it made the device {name}")


def _member(draw: random.Random, here: Path, name: str) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    outside = str(here / "outside")
    leading_out = outside, f"../{name}", f"a/../../{name}", "link/outside"
    names = (name, name, *leading_out, "./", "a//b", f"{name}\n\x1b[31m", "é\ud8ff")
    member = tarfile.TarInfo(draw.choice(names).encode(errors="replace").decode())
    member.mode = draw.choice((0o644, 0o6755, 0))
    kinds = (
        *(tarfile.REGTYPE,) * 4,
        *(tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.BLKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE),
        tarfile.GNUTYPE_SPARSE,
    )
    member.type = draw.choice(kinds)
    if member.type in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        member.linkname = draw.choice((outside, "../outside", str(here), "file-0", "link", "/etc/passwd"))
        member.name = draw.choice((member.name, "link"))
    if member.type == tarfile.REGTYPE:
        # A bomb is small in the archive where that is compressed.
        member.size = draw.choice((0, 10, 5000, 4 << 20))
        return member, io.BytesIO(bytes(member.size))
    return member, None


KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "stacks": spec,
    "options that lead out": reaching,
    "traps that lead out": traps,
    "budgets": budgets,
    "options": options,
    "results": results,
    "journals": journals,
    "histories": histories,
    "histories that are links": linked_histories,
    "kernels": kernels,
    "jobs of fio": fio_jobs,
    "corpora": corpora,
}
#: What is read most is drawn most; archives take longest.
_WEIGHTS = (8, 4, 2, 4, 8, 3, 3, 1, 1, 1, 1, 2)


# -- results -----------------------------------------------------------------------------------------------------------


def _valid() -> Results:
    samples = [
        Sample({"seconds": 1 + number / 10, "written_bytes": 4096.0}, kept={"note": "text"}) for number in range(3)
    ]
    stacks = ("ext4", "luks+ext4")
    chain = a_chain({"write": dict.fromkeys(stacks, samples)}, conditions=[{"load": 0.5}] * 3)
    for stack in stacks:
        chain = chain.with_stack(stack, mounts=["/dev/loop0 on /mnt"], commands=["mkfs.ext4"])
    environment = {"kernel": {"release": "6.1"}, "cpu": {"count": 2}}
    return chain.results(environment, start="2026-01-01T00:00:00+00:00", labels={"a": "b"})


def _spoiled(draw: random.Random, document: Any) -> Any:
    """A document with something else in one of its places."""
    document = copy.deepcopy(document)
    places = list(_places(document))
    for _ in range(draw.choice((1, 1, 2, 4))):
        holder, key = draw.choice(places)
        other, name = draw.choice(places)
        values: tuple[Any, ...] = (
            *(None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**400, [], {}, [[]], "x"),
            *(draw.choice(WORDS), draw.choice(WORDS), draw.choice(WORDS)),
            copy.deepcopy(other[name]) if _has(other, name) else None,
        )
        value = draw.choice(values)
        if isinstance(holder, dict) and draw.random() < 0.3:
            holder[draw.choice(WORDS)] = holder.pop(key, value)
        elif _has(holder, key):
            holder[key] = value
    return document


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Everything that holds something, and where."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(items):
        yield node, key
        yield from _places(value)


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else isinstance(key, int) and key < len(holder)


def harmless(name: str, text: str) -> None:
    """Raise `Wrong` if a report does to its reader what a name in it says."""
    if name == "html" and (MARKUP in text or "<img src=x" in text):
        raise Wrong("markup in the HTML report")
    if name == "csv" and any(cell.startswith("=cmd") for line in text.splitlines() for cell in line.split(",")):
        raise Wrong("a formula in the CSV report")
    # No browser and no spreadsheet obeys an escape; what is printed is obeyed.
    if name not in ("json", "csv", "html"):
        no_escape(text)


def no_escape(text: str) -> None:
    if "\x1b" in text or "\x07" in text:
        raise Wrong(f"an escape is shown: {text[max(0, text.find(chr(27)) - 40) :][:120]!r}")


# -- running them ------------------------------------------------------------------------------------------------------


@contextmanager
def allowed(*kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        str(error)


_watched = True
_seen: list[str] = []


@contextmanager
def _watching(state: bool) -> Iterator[None]:
    global _watched
    before, _watched = _watched, state
    try:
        yield
    finally:
        _watched = before


def _unpacks(words: list[str]) -> bool:
    """Return whether a command is one of those that unpack archives."""
    wrappers = commands.wrappers(outlives=False)
    if words[: len(wrappers)] == wrappers:
        words = words[len(wrappers) :]
    ends = [(list(tool), words[-len(tool) :]) for tool in packages.TOOLS.values()]
    is_package = any([os.path.basename(end[0]), *end[1:]] == tool for tool, end in ends)
    return is_package or os.path.basename(words[0]) in _UNPACK


def watch(here: Path) -> None:
    """From here on, note each command that is run and each file outside that is changed."""
    inside = (f"{here}/", "/dev/null")
    # What Python keeps of the modules that are imported meanwhile is no doing of an input's.
    sys.dont_write_bytecode = True
    starts = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn")
    calls = "remove rename rmdir mkdir link symlink chmod chown truncate"
    changes = [f"os.{call}" for call in calls.split()]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not _watched:
            return
        if event in starts:
            words = arguments[1] if event == "subprocess.Popen" else [arguments[0]]
            if not _unpacks([os.fspath(word) for word in words]):
                _seen.append(f"a command is run: {words}")
        elif event == "open" and isinstance(arguments[0], (str, bytes)) and isinstance(arguments[2], int):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            # Unnamed files of the temporary directory are nobody's.
            nameless = os.path.isdir(path)
            if writes and not nameless and not path.startswith(inside):
                _seen.append(f"a file is opened for writing: {path}")
        elif event in changes and isinstance(arguments[0], (str, bytes, os.PathLike)):
            made = arguments[1] if event in ("os.link", "os.symlink") else arguments[0]
            if event != "os.truncate" and isinstance(arguments[-1], int) and arguments[-1] >= 0:
                # Relative to an open directory.
                made = os.path.join(os.readlink(f"/proc/self/fd/{arguments[-1]}"), os.fsdecode(made))
            path = os.path.abspath(os.fsdecode(made))
            if not path.startswith(inside):
                _seen.append(f"{event} of {path}")

    sys.addaudithook(hook)


def _time_up(number: int, frame: FrameType | None) -> None:
    raise TimeUp


def run(seed: str, count: int, here: Path) -> dict[str, Any]:
    """So many cases; how many of each kind there were, and what was wrong."""
    draw = random.Random(seed)
    (here / "outside").write_text("untouched")
    os.chdir(here)
    signal.signal(signal.SIGALRM, _time_up)
    tempfile.gettempdir()  # it tries the directory out, once
    # The first page imports what writes it: seconds, on a busy machine many.
    REPORTS["html"](_valid())
    # Packages of kernels are unpacked by a user without rights.
    here.chmod(0o711)
    watch(here)
    cases: Counter[str] = Counter()
    wrong: list[tuple[str, str]] = []
    for number in range(count):
        (kind,) = draw.choices(list(KINDS), _WEIGHTS)
        cases[kind] += 1
        case = f"{seed} {number}"
        signal.setitimer(signal.ITIMER_REAL, _LIMIT)
        try:
            KINDS[kind](random.Random(case), here)
        except Wrong as error:
            wrong.append(("outside" if "lead" in kind or "elsewhere" in str(error) else "wrong report", f"{error}"))
        except TimeUp:
            wrong.append(("hung", f"{kind} ({case}): not ended after {_LIMIT:g} s"))
        except BaseException as error:
            import traceback

            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            wrong.append(("traceback", f"{kind} ({case}): {type(error).__name__}: {str(error)[:200]}\n{where}"))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        wrong += [("outside", f"{kind} ({case}): {what}") for what in _seen]
        _seen.clear()
        if (here / "torture").exists():
            wrong.append(("outside", f"{kind} ({case}): a word was run as a command"))
            (here / "torture").unlink()
    return {"cases": cases, "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).resolve())))
