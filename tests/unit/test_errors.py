"""docs/errors.md and the plugin say the same: each message of the page is caused, and each in the source is on it."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from pytest_fsstack import Built, Directory, Place, explain, options, past, settings
from pytest_fsstack.command import new, reports
from pytest_fsstack.data import archive, corpus, scale
from pytest_fsstack.judging import budget, conditions, saved
from pytest_fsstack.judging.results import Results
from pytest_fsstack.kernels import controller, images, vm
from pytest_fsstack.layers import (
    BUILT_IN,
    devices,
    kernel_encryption,
    loopback,
    lvm,
    mapper,
    passthrough,
    raid,
    scrubs,
    stacked,
    zfs,
)
from pytest_fsstack.machine import blockdev, commands, guard, journal, mounts, orphans, processes
from pytest_fsstack.machine.guard import label, reading
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.measuring import timed as measuring
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.report.files import ReportFile
from pytest_fsstack.session import marks, selecting
from pytest_fsstack.stack import build
from pytest_fsstack.stack.model import Block, Site, Stack
from pytest_fsstack.units import reason_of
from pytest_fsstack.workloads import bonnieplus, fiojob
from pytest_fsstack.workloads import tree as trees
from tests import messages
from tests.caused_elsewhere import CAUSED_ELSEWHERE
from tests.toolkit import NotedJournal

PAGE = messages.ROOT / "docs/errors.md"
ON_PAGE = messages.of_page(PAGE.read_text())


class World(NamedTuple):
    """What a cause may use."""

    tmp: Path
    patch: pytest.MonkeyPatch

    def tar(self, *names: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Path:
        """An archive of empty members."""
        path = self.tmp / "corpus.tar"
        with tarfile.open(path, "w") as out:
            for name in names:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, target
                out.addfile(member)
        return path

    def site(self) -> Site:
        return Site(self.tmp, Forgetful())


class Forgetful(NotedJournal):
    """A journal that undoes nothing: what the causes enter stands for things, or processes, that there are not."""

    @contextlib.contextmanager
    def entry(self, kind: journal.Kind, **facts: journal.Fact) -> Iterator[journal.Note]:
        yield journal.Note(self, 0, kind, facts)


Cause = Callable[[World], object]


# -- causes, by the section of the page --------------------------------------------------------------------------------


def option(name: str, text: str) -> Cause:
    return lambda world: options.named(name).read(text)


def stack(text: str) -> Cause:
    return lambda world: Stack.parse(text, BUILT_IN)


def device(text: str, **keywords: Any) -> Cause:
    return lambda world: devices.parse_device(text, size=1, overwrite=frozenset(), **keywords)


def marker(*words: object, **named: object) -> Cause:
    return lambda world: marks.check_words(pytest.mark.fsstack(*words, **named).mark)


def of_budget(*words: object, **named: object) -> Cause:
    return lambda world: budget.rules(*words, **named)


def timed(act: Callable[[Timed], object]) -> Cause:
    return lambda world: act(Timed(cast(Built, None)))


def command(act: Callable[[list[str]], object], *words: str) -> Cause:
    def run(world: World) -> None:
        world.patch.chdir(world.tmp)
        act(list(words))

    return run


def given(world: World, **values: object) -> pytest.Config:
    """A session's options, of which these are given."""
    config = cast(Any, type("Config", (), {"getoption": lambda self, name, *default: True})())
    world.patch.setattr(options, "value", lambda config, name: values.get(name.replace("-", "_")))
    world.patch.setattr(options, "on_command_line", lambda config, name: values.get(name.replace("-", "_")))
    world.patch.setattr(options, "worker_input", lambda config: {})
    world.patch.setattr(options, "blaming_option", lambda config, name: contextlib.nullcontext())
    return cast(pytest.Config, config)


def rules_for_guests(world: World) -> None:
    settings._discard_rounds(given(world), {"discard-rounds": conditions.parse("steal>5%"), "kernel": ["linux"]})


COMMAND_LINE = [
    lambda world: options._near("fsstack_devise"),
    lambda world: options._near("fsstack_overwrite"),
    rules_for_guests,
    lambda world: past.start(given(world, compare_anyway=True), cast(Any, None)),
    lambda world: past.start(given(world, max_regression=0.05), cast(Any, None)),
    lambda world: past.start(given(world, accept=world.tmp), cast(Any, None)),
    lambda world: past.start(given(world, history=world.tmp), cast(Any, None)),
    option("missing", "maybe"),
    option("size", "much"),
    option("size", "9" * 50),
    option("vm-memory", "1M"),
    option("readahead", "5"),
    option("rounds", "0"),
    option("seed", "x"),
    option("timeout", "-1"),
    option("alpha", "2"),
    option("study", "filesystem"),
    option("dir", "/no/such"),
    option("corpus", "/no/such"),
    option("label", "x"),
    option("discard-rounds", "busy"),
]

STACKS = [
    *(
        stack(text)
        for text in ("", "ext4 |", "ext4 | (bind | bind)", "ext4 | 3", "ext4('-b 4096')", "luks(**x) | ext4")
    ),
    stack("ext4(mkfs='', mkfs='')"),
    stack("ext4(mkfs=noatime)"),
    stack("ext5"),
    stack("ext4(noatime=True)"),
    stack("ext4(mkfs=3)"),
    stack("ext4 | luks"),
    stack("ext4 | encfs(mode='x')"),
    stack("xfs | fscrypt"),
    stack("ext4(mkfs='-O ^encrypt') | fscrypt"),
    stack("ext4(mkfs='-E journal=/dev/null/x')"),
    stack("ext4(binary='mkfs.xfs')"),
    stack('ext4(mkfs="-L \'x")'),
    stack("xfs = ext4 ! luks"),
]

LAYERS = [
    stack(text)
    for text in (
        "luks(key_size=-1) | ext4",
        "ext4 | ecryptfs(key_bytes=0)",
        "luks(sector_size=100) | ext4",
        "luks(type='luks1', sector_size=512) | ext4",
        "luks(journal=False) | ext4",
        "integrity(tag_size=-1) | ext4",
        "btrfs(compress='rar')",
        "lvm(stripes=3) | ext4",
        "lvm(kind='striped', stripes=1) | ext4",
        "lvm(kind='thin', chunk_size=-1) | ext4",
        "raid(level=2) | ext4",
        "raid(devices=1) | ext4",
        "raid(level=10, devices=5) | ext4",
        "raid(chunk_size=4096) | ext4",
        "raid(level=5, chunk_size=3) | ext4",
        "linear(offset='3') | ext4",
        "delay(read=-1) | ext4",
        "recorded(sector=1024) | ext4",
        "flakey(up=-1) | ext4",
        "flakey(up=0, down=0) | ext4",
        "flakey(error_writes=True, drop_writes=True) | ext4",
        "ext4 | overlay(lower='../x')",
        "ext4 | gocryptfs(xchacha=True, aessiv=True)",
        "ext4 | securefs(format=9)",
        "ext4 | fscrypt(contents='Adiantum', filenames='AES-256-CTS')",
    )
]


def small_raid(world: World) -> None:
    world.patch.setattr(raid, "sectors", lambda place: 8)
    with raid.Raid().opened(Block(world.tmp, lambda: None), world.site(), 1):
        pass


LAYERS.append(small_raid)


def other_loop_device(world: World) -> None:
    world.patch.setattr(loopback, "_configure", lambda image, flags, sector: (os.dup(image), Path("/dev/null")))
    world.patch.setattr(blockdev, "backing", lambda loop: blockdev_backing(0))
    world.patch.setattr(loopback, "_backing_file", lambda path: None)
    world.patch.setattr(commands, "wait_until", lambda condition, seconds: True)
    with (world.tmp / "image").open("wb") as image, loopback.attached(image.fileno()) as block:
        block.check()


class blockdev_backing(NamedTuple):  # noqa: N801 - stands for what the function of that name returns
    device: int
    inode: int = 0


def in_use_again(world: World) -> None:
    @contextlib.contextmanager
    def opened(*words: object) -> Any:
        raise OSError("busy")
        yield

    world.patch.setattr(blockdev, "opened", opened)
    with label._alone(cast(Any, type("Disk", (), {"path": "x", "number": "0:0", "named": Path("/dev/sdx")}))):
        pass


def other_number(world: World) -> None:
    with blockdev.opened(Path("/dev/null"), "7:7"):
        pass


def cannot_discard(world: World) -> None:
    world.patch.setattr(Path, "is_block_device", lambda path: True)
    device("/dev/null", discard=True)(world)


def unreadable(world: World) -> None:
    (world.tmp / "disk").write_bytes(b"short")
    with (world.tmp / "disk").open("rb") as file:
        reading.pread(file.fileno(), 4096, 0)


DEVICES = [
    unreadable,
    *(device(text) for text in ("sdb1", "/dev/no-such", "/etc/passwd", "dir:/no/such", "/etc")),
    cannot_discard,
    lambda world: guard.identify(Path("/dev/no-such")),
    lambda world: guard.identify(Path("/dev/null")),
    other_loop_device,
    lambda world: mapper.block("fsstack-1-x", Path("/dev/no-such")).check(),
    in_use_again,
    other_number,
]


def without_sizes(world: World) -> None:
    selecting.sizes_of(cast(Any, type("Item", (), {"get_closest_marker": lambda self, name: None})()), "small")


def repeated_alone(world: World) -> str:
    item = cast(Any, type("Item", (), {"parent": None})())
    return marks.wrong_repeat(pytest.mark.fsstack_repeat(3).mark, item)


MARKERS = [
    without_sizes,
    repeated_alone,
    marker("ext4", baselin="ext4"),
    marker(["ext4"]),
    marker("ext4", baseline=3),
    lambda world: scale.sizes_at({}, "small"),
    timed(lambda block: block.record("seconds", 1)),
    timed(lambda block: block.record("cost", float("inf"))),
    timed(lambda block: block.record("cost", 1, better=cast(Any, "more"))),
    timed(lambda block: block.record("cost", 1, resolution=-1)),
    timed(lambda block: block.keep("path", Path("x"))),
]

BUDGETS = [
    *(lambda world, text=text: budget.parse(text) for text in ("luks* 30", "ext4: seconds <= 1.2.3")),
    of_budget("much"),
    of_budget(True),
    of_budget("-200%"),
    of_budget(-2),
    of_budget(limit=0),
    of_budget("5%", "seconds"),
    of_budget("5%", overhead="5%"),
    of_budget(overhed="5%"),
    of_budget(),
    of_budget("5%", metric=["seconds"]),
    of_budget({3: "5%"}),
    of_budget("5%", xfail="BUG-1"),
]


def users(world: World, path: Path) -> None:
    corpus.users_corpus(path, world.tmp / "cache")


def cut_off(world: World) -> None:
    path = world.tar("file")
    path.write_bytes(path.read_bytes()[:600])
    users(world, path)


def rubbish(world: World) -> None:
    path = world.tar("file")
    path.write_bytes(path.read_bytes()[:512] + b"rubbish" * 100)
    users(world, path)


def damaged_gzip(world: World) -> None:
    path = world.tmp / "corpus.tar.gz"
    path.write_bytes(b"\x1f\x8b\x08\0rubbish")
    users(world, path)


def holds_the_cache(world: World) -> None:
    (world.tmp / "cache").mkdir()
    users(world, world.tmp)


def cannot_pack(world: World) -> None:
    def fail(*argv: str, **keywords: object) -> str:
        raise commands.CommandError(("tar",), 2, "no room")

    world.patch.setattr(commands, "run", fail)
    with (world.tmp / "out").open("wb") as out:
        archive.pack(world.tmp, out)


def cannot_compress(world: World) -> None:
    world.patch.setattr(archive, "ZSTD", Tool("false", "coreutils"))
    with (world.tmp / "out").open("wb") as out:
        archive.compress(out, lambda stream: None)


def two_kernels(world: World) -> None:
    (world.tmp / "boot").mkdir()
    for name in "vmlinuz-1", "vmlinuz-2":
        (world.tmp / "boot" / name).write_bytes(b"")
    images.resolve(str(world.tmp), world.tmp)


def still_written(world: World) -> None:
    world.patch.setattr(measuring, "_sync", lambda: None)
    world.patch.setattr(measuring, "_unwritten", lambda: 8 << 20)
    measuring.drop_caches(patience=0)


def private_mounts(world: World) -> None:
    class Libc:
        def unshare(self, flags: int) -> int:
            return 0

        def mount(self, *words: object) -> int:
            return -1

    world.patch.setattr(ctypes, "CDLL", lambda name, use_errno: Libc())
    mounts.private_namespace.__wrapped__()


def journal_of_others(world: World) -> None:
    (world.tmp / "journal").mkdir()
    (world.tmp / "journal").chmod(0o777)
    journal._check_own(world.tmp / "journal")


def journal_is_full(world: World) -> None:
    world.patch.setattr(os, "write", lambda descriptor, content: 0)
    journal._append(0, {})


def workers_of_ones_own(world: World) -> None:
    config = given(world)
    world.patch.setattr(
        type(config), "pluginmanager", type("Plugins", (), {"hasplugin": lambda name: True}), raising=False
    )
    controller.start(config, cast(Any, None))


def without_virtme(world: World) -> None:
    world.patch.setattr(shutil, "which", lambda name, path: None)
    world.patch.setattr(commands, "which", lambda name: None)
    vm.virtme_run()


MACHINE = [
    workers_of_ones_own,
    without_virtme,
    lambda world: users(world, Path("/dev/null")),
    lambda world: users(world, world.tar("directory", kind=tarfile.DIRTYPE)),
    lambda world: users(world, world.tar("disk", kind=tarfile.BLKTYPE)),
    lambda world: users(world, world.tar("../file")),
    lambda world: users(world, world.tar("name", kind=tarfile.LNKTYPE, target="nothing")),
    lambda world: users(world, world.tar("name", "name/file")),
    cut_off,
    rubbish,
    damaged_gzip,
    holds_the_cache,
    cannot_pack,
    cannot_compress,
    lambda world: corpus.generated(world.tmp, files=3, directories=9),
    lambda world: images.resolve("/no/such", world.tmp),
    lambda world: images.resolve(str(world.tmp), world.tmp),
    lambda world: images.resolve("/etc/passwd", world.tmp),
    two_kernels,
    still_written,
    private_mounts,
    journal_of_others,
    journal_is_full,
]


def never_mounted(world: World) -> None:
    with stacked.served(world.tmp, world.site(), "sleep", "60", patience=0):
        pass


def no_such_mapping(world: World) -> None:
    world.patch.setattr(mapper, "held", lambda ours, make: contextlib.nullcontext({}))
    with mapper.mapping("name", world.site(), "cryptsetup"):
        pass


def other_volumes(world: World) -> None:
    world.patch.setattr(lvm.Lvm, "_physical", lambda *words: contextlib.nullcontext([]))
    world.patch.setattr(lvm, "_private", lambda *words: contextlib.nullcontext({}))
    world.patch.setattr(mapper, "held", lambda ours, make: contextlib.nullcontext({}))
    with lvm.Lvm().opened(Block(world.tmp, lambda: None), world.site(), 1):
        pass


def mapping_in_use(world: World) -> None:
    world.patch.setattr(mapper, "_name", lambda path: "name")
    world.patch.setattr(commands, "wait_until", lambda condition, seconds: condition())
    mapper._wait_for_the_end({"name": Path("/dev/dm-99")})


def key_in_use(world: World) -> None:
    world.patch.setattr(commands, "run", lambda *argv: "busy")
    kernel_encryption.Fscrypt()._remove_key(Block(world.tmp, lambda: None), "key")


def frozen(world: World) -> None:
    world.patch.setattr(commands, "run", lambda *argv: "0 8 raid raid6_ls 4 AAAA 3/8 frozen 0")
    raid._wait_for_synchronisation("name", Block(Path("/dev/dm-9"), lambda: None))


def never_synchronised(world: World) -> None:
    world.patch.setattr(commands, "wait_until", lambda condition, seconds: False)
    raid._wait_for_synchronisation("name", Block(Path("/dev/dm-9"), lambda: None))


def never_scrubbed(world: World) -> None:
    world.patch.setattr(commands, "run", lambda *argv: "scrub: scrub in progress")
    world.patch.setattr(commands, "wait_until", lambda condition, seconds: condition())
    scrubs.zfs("fsstack-1")


def daemon_of_the_system(world: World) -> None:
    world.patch.setattr(mounts, "private_namespace", lambda: False)
    with zfs._hidden(world.tmp):
        pass


def no_answer(world: World) -> None:
    daemon = type("Daemon", (), {"argv": ("zfs-fuse",), "pid": None, "kill": lambda self: None})()
    world.patch.setattr(zfs, "_in_kernel", lambda: False)
    world.patch.setattr(zfs, "_hidden", lambda state: contextlib.nullcontext())
    world.patch.setattr(processes, "start", lambda *argv: daemon)
    world.patch.setattr(commands, "wait_until", lambda condition, seconds: False)
    with zfs.Zfs()._driver(world.site()):
        pass


class Failing(devices.DirectoryDevice):
    """A device that cannot be had."""

    def opened(self, site: Site) -> Any:
        raise OSError(28, "No space left on device")


def no_device(world: World) -> None:
    with build.build(Stack.parse("directory", BUILT_IN), Failing(world.tmp), world.site()):
        pass


class Stuck(passthrough.PlainDirectory):
    """A layer that does not come down."""

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        yield Directory(below.path)
        raise OSError(16, "Device or resource busy")


def stuck(world: World) -> None:
    with build.build(Stack((Stuck(),)), devices.DirectoryDevice(world.tmp), world.site()):
        pass


STANDING = [
    no_answer,
    no_device,
    stuck,
    lambda world: commands.run("no-such-command"),
    never_mounted,
    no_such_mapping,
    other_volumes,
    mapping_in_use,
    key_in_use,
    frozen,
    never_synchronised,
    never_scrubbed,
    daemon_of_the_system,
]

FEW_FILES = cast(archive.Corpus, type("Corpus", (), {"files": 3, "directories": 1, "links": 0}))
STEPS = [
    lambda world: trees._verify_rsync("nothing", cast(Any, None)),
    lambda world: trees._verify_rsync("Number of files: 9 (reg: 9)", FEW_FILES),
    lambda world: cast(Any, bonnieplus.bonnie).__wrapped__(None, None, size=5),
    lambda world: cast(Any, bonnieplus.bonnie).__wrapped__(None, None, size=4 << 20, files=3),
    lambda world: bonnieplus._figure(next(field for field in bonnieplus._FIELDS if field), "?"),
    lambda world: fiojob.parse_fio("nothing"),
    lambda world: fiojob.parse_fio("{}"),
    lambda world: fiojob.parse_fio('{"jobs": [{}]}'),
]


def nothing_to_accept(world: World) -> str:
    said: list[str] = []
    session = type("Session", (), {"results": Results(), "say": lambda self, text, **look: said.append(text)})
    accepting = past.Accepting(cast(Any, session()), ReportFile("accept", world.tmp / "reference.json"))
    ended = type("Ended", (), {"config": given(world), "exitstatus": pytest.ExitCode.OK})()
    ended.config.getoption = lambda name: False
    list(accepting.pytest_sessionfinish(ended))
    return said[0]


RESULTS = [
    nothing_to_accept,
    lambda world: saved.loads("{}"),
    lambda world: saved.loads("x"),
    lambda world: saved.loads('{"format": 999}'),
    lambda world: saved.loads(f'{{"format": {saved.FORMAT}}}'),
]


def writes_elsewhere(world: World) -> None:
    recorder = type("Recorder", (), {"touched": lambda self, path: None, "scratch": world.tmp / "scratch"})()
    world.patch.setattr(explain, "_active", [recorder])
    explain._audit("open", (str(world.tmp / "file"), "w", 1))


def empty_report(world: World) -> None:
    world.patch.setattr(reports, "_read", lambda name: type("Results", (), {"chains": []})())
    hook = type("Hook", (), {"pytest_fsstack_reports": lambda self: [], "pytest_fsstack_tables": lambda self: []})()
    reports._report(["run.json"], cast(Any, type("Config", (), {"hook": hook})()))


COMMANDS = [command(new.new, "layer"), command(new.new, "layer", "A"), writes_elsewhere, empty_report]


def not_plugged_in(world: World) -> None:
    devices._unlabelled({"path": str(world.tmp / "gone"), "diskseq": 3})


def own_ancestor(world: World) -> None:
    world.patch.setattr(orphans, "_descendants", lambda facts: {7: 0})
    world.patch.setattr(orphans, "_ancestry", lambda: [7])
    orphans._end_all({})


def key_left(world: World) -> None:
    world.patch.setattr(commands, "run", lambda *argv: "busy")
    kernel_encryption._key_removed({"target": str(world.tmp), "key": "x"})


def volumes_left(world: World) -> None:
    world.patch.setattr(lvm, "_active_volumes", lambda facts: ["volume"])
    world.patch.setattr(commands, "run", lambda *argv, **keywords: "")
    world.patch.setattr(commands, "wait_until", lambda condition, seconds: condition())
    lvm._deactivated({"name": "fsstack-1"})


CLEAN_UP = [
    not_plugged_in,
    own_ancestor,
    key_left,
    volumes_left,
    lambda world: lvm._active_volumes({"name": "system"}),
    lambda world: journal.text({}, "path"),
]

CAUSES = [
    *(COMMAND_LINE + STACKS + LAYERS + DEVICES + MARKERS + BUDGETS + MACHINE + STANDING + STEPS + RESULTS),
    *(COMMANDS + CLEAN_UP),
]


@functools.cache
def said(index: int) -> str:
    """What the cause of that number makes the plugin say: the sentence, without the mark under a stack's text."""
    import tempfile

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        try:
            return str(CAUSES[index](World(Path(directory), patch)) or "")
        except (Exception, pytest.fail.Exception) as error:
            return reason_of(error).partition("\n  ")[0]


@pytest.mark.parametrize("index", range(len(CAUSES)))
def test_what_is_caused_is_on_the_page(index: int) -> None:
    text = said(index)
    assert text
    assert [message for message in ON_PAGE if messages.pattern(message).fullmatch(text)], text


def test_a_message_is_caused_here_or_by_the_test_that_is_named() -> None:
    here = [said(index) for index in range(len(CAUSES))]
    caused = {message for message in ON_PAGE if any(messages.pattern(message).fullmatch(text) for text in here)}
    for test, beginnings in CAUSED_ELSEWHERE.items():
        for beginning in beginnings:
            found = {message for message in ON_PAGE if message.startswith(beginning)}
            assert len(found) == 1, f"{beginning} of {test} begins {len(found)} messages"
            caused |= found
    assert set(ON_PAGE) - caused == set()


def test_the_tests_that_are_named_speak_of_it() -> None:
    silent = [
        f"{test}: {beginning}"
        for test, beginnings in CAUSED_ELSEWHERE.items()
        for beginning in beginnings
        if not (pieces(next(message for message in ON_PAGE if message.startswith(beginning))) & words_of(test))
    ]
    assert silent == []


def pieces(message: str) -> set[str]:
    """All that is literal in a message, cut into overlapping pieces of 8 characters."""
    return {part[start : start + 8] for part in message.split("…") for start in range(max(1, len(part) - 7))}


@functools.cache
def words_of(test: str) -> set[str]:
    """All text in a test, its parameters included, cut in the same way; empty if there is no such test."""
    path, _, name = test.partition("::")
    return {
        piece
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef) and function.name == name
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for piece in pieces(node.value.replace("\\", ""))
    }


@functools.cache
def _tree(path: str) -> ast.Module:
    return ast.parse((messages.ROOT / path).read_text())


# -- the source --------------------------------------------------------------------------------------------------------

#: What raises, but not for anything that a user does; by module, or function in it.
NOT_OF_USERS = {
    "__init__.py": "Python's own message for a name that a module does not have",
    "data/source_tree.py": "paths of generated files, which all fit",
    "judging/past.py": "arguments of statistics, which what reads the users' has checked",
    "judging/quantiles.py": "the same",
    "judging/runs.py": "the same",
    "judging/spread.py": "the same",
    "judging/verdict.py": "the same",
    "kernels/turns.py": "a scheduler's duties towards pytest-xdist that cannot arise",
    "machine/guard/disk.py shown_size": "a size, not an error",
    "machine/guard/users.py named": "a name, not an error",
    "machine/journal.py _facts": "becomes the reason for which a journal is left alone",
    "machine/journal.py _typed": "the same",
    "machine/kmsg.py": "the kernel's own files",
    "machine/mounts.py parse": "the kernel's own files",
    "options.py _positive": "passes on what its caller wants",
    "truth/contents.py": "how a stack differs from its model, which is a result",
    "truth/exploring.py Patience.make": "the same",
    "truth/tree.py": "the same",
    "workloads/latency.py percentile": "of no operation, where each step has one at least",
}


def test_each_message_in_the_source_is_on_the_page() -> None:
    patterns = [messages.pattern(message) for message in ON_PAGE]
    missing = [site for site in messages.in_source() if not any(known.fullmatch(site.text) for known in patterns)]
    reasons = {site: {site.module, f"{site.module} {site.function}"} & NOT_OF_USERS.keys() for site in missing}
    assert [str(site) for site, known in reasons.items() if not known] == []
    assert set().union(*reasons.values()) == NOT_OF_USERS.keys()


def test_a_new_message_would_be_missed() -> None:
    code = "def act():\n    raise pytest.UsageError(f'{name}: there is no moon')\n"
    assert [site.text for site in messages.of_module("x.py", ast.parse(code))] == ["…: there is no moon"]


def test_no_message_is_on_the_page_twice() -> None:
    assert [message for message in set(ON_PAGE) if ON_PAGE.count(message) > 1] == []
