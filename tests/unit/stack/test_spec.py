"""The text of a stack, and what it means."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from pytest_fsstack.devices import DirectoryDevice, LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.dmcrypt import Luks
from pytest_fsstack.layers.filesystems import Btrfs, Ext4
from pytest_fsstack.stack import keys, spec
from pytest_fsstack.stack.layer import option
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.spec import Call, Option, Pipe, Setting, SpecError

words = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda word: word.isidentifier() and word not in {"if", "is", "in", "or", "as", "and", "not", "def", "del", "for"}
)
identifiers = words.filter(lambda word: not __import__("keyword").iskeyword(word))
literals = st.one_of(st.text(max_size=12), st.integers(-(2**63), 2**63), st.booleans(), st.none())
calls = st.builds(
    Call,
    identifiers,
    st.dictionaries(identifiers, literals, max_size=3).map(
        lambda options: tuple(Option(name, value) for name, value in options.items())
    ),
)
names = st.none() | st.from_regex(spec.NAME, fullmatch=True)
settings = st.dictionaries(
    st.from_regex(r"[\w./-]{1,12}", fullmatch=True).filter(str.isascii),
    st.from_regex(r"[\w.:+-]{1,8}", fullmatch=True).filter(str.isascii),
    max_size=3,
).map(lambda pairs: tuple(Setting(key, value) for key, value in pairs.items()))


@given(st.builds(Pipe, st.lists(calls, min_size=1, max_size=5).map(tuple), names, settings))
def test_parse_and_str_are_inverses(pipe: Pipe) -> None:
    assert spec.parse(str(pipe)) == pipe


@given(st.text(alphabet="luks|ext4()='= ,-@/.*{}[]\n\\ä0\udcff", max_size=40))
def test_any_text_is_read_or_refused_with_a_caret_inside_it(text: str) -> None:
    try:
        spec.parse(text)
    except SpecError as error:
        assert 0 <= error.start <= max(0, len(text)), error
        assert "^" in str(error).splitlines()[-1]


def stack_strategy() -> st.SearchStrategy[Stack]:
    block = st.sampled_from(["luks", "luks(cipher='aes-cbc-essiv:sha256', key_size=256)", "dmcrypt(sector_size=4096)"])
    filesystem = st.sampled_from(["ext4", "btrfs(compress='zstd:3')", "xfs(mkfs='-m reflink=0', mount='noatime')"])
    stacked = st.sampled_from(["gocryptfs(aessiv=True)", "encfs(mode='paranoia')", "bind"])
    allowed = ["queue/scheduler=mq-deadline", "top/read_ahead_kb=0", "vm.dirty_bytes=64M", "fuse/enable_uring=Y"]
    return st.builds(
        lambda settings, name, lower, middle, upper: Stack.parse(
            (f"{name} = " if name else "")
            + " | ".join([*lower, middle, *upper])
            + (f" @ {', '.join(settings)}" if settings else ""),
            BUILT_IN,
        ),
        st.lists(st.sampled_from(allowed), max_size=3, unique=True),
        names,
        st.lists(block, max_size=2),
        filesystem,
        st.lists(stacked, max_size=2),
    )


@given(stack_strategy())
def test_stacks_survive_their_own_text(stack: Stack) -> None:
    assert Stack.parse(str(stack), BUILT_IN) == stack


@given(stack_strategy())
def test_ids_are_made_of_what_dash_k_accepts(stack: Stack) -> None:
    assert spec.NAME.fullmatch(stack.id)


def test_a_stack_reads_as_its_layers_with_their_options() -> None:
    stack = Stack.parse("safe = luks(key_size=256) | btrfs(compress='zlib')", BUILT_IN)
    assert stack == Stack((Luks(key_size=256), Btrfs(compress="zlib")), "safe")
    assert str(stack) == "safe = luks(key_size=256) | btrfs(compress='zlib')"
    assert stack.spec == "luks(key_size=256) | btrfs(compress='zlib')"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ext4", "ext4"),
        ("luks | ext4", "luks+ext4"),
        ("btrfs(compress='zlib')", "btrfs-zlib"),
        ("luks | btrfs(compress='zstd:3')", "luks+btrfs-zstd:3"),
        ("ext4(mount='noatime,discard')", "ext4-noatime.discard"),
        ("luks(key_size=256) | ext4", "luks-key_size.256+ext4"),
        ("ext4 | gocryptfs(aessiv=True)", "ext4+gocryptfs-aessiv"),
        ("mine = luks | ext4", "mine"),
        ("ext4 @ queue/scheduler=bfq,vm.dirty_bytes = 64M", "ext4+queue.scheduler-bfq+vm.dirty_bytes-64M"),
        ("mine = ext4(mkfs='-L a@b') @ fuse/enable_uring=Y", "mine"),
    ],
)
def test_ids_are_short_names_of_the_layers(text: str, expected: str) -> None:
    assert Stack.parse(text, BUILT_IN).id == expected


def test_defaults_that_are_written_out_are_the_same_stack() -> None:
    assert Stack.parse("ext4(mount='')", BUILT_IN) == Stack((Ext4(),))


@pytest.mark.parametrize(
    ("text", "facts", "marked"),
    [
        ("", "layer", ""),
        ("luks | ext5", r"'ext5'.*\bext\d\b", "ext5"),
        ("zzz", r"'zzz'.*\bbcache, bcachefs, bind, btrfs\b.*\bconftest\.py\b", "zzz"),
        (f"pool(0x{'f' * 5000})", r"\b64 bits\b", f"0x{'f' * 5000}"),
        (f"luks(key_size=-0x{'f' * 5000})", r"\b64 bits\b", f"0x{'f' * 5000}"),
        ("ext4(compress='zlib')", r"^ext4 .*'compress'.*\bbinary, mkfs, mount\b", "compress='zlib'"),
        ("btrfs(compress='gzip')", r"compress: .*\blzo\b.*\bzlib\b.*\bzstd\b.*'gzip'", "compress='gzip'"),
        ("encfs(mode='fast')", r"mode: .*\bstandard, paranoia\b.*'fast'", "mode='fast'"),
        ("ext4(mount=3)", r"mount: .*\btext\b.*\b3\b", "mount=3"),
        ("luks(key_size='256')", r"key_size: .*\bnumber\b.*'256'", "key_size='256'"),
        ("luks(key_size=True)", r"key_size: .*\bnumber\b.*\bTrue\b", "key_size=True"),
        ("ext4(mount=noatime)", "'mount'.*literal", "noatime"),
        ("ext4('noatime')", r"ext4\(option=", "'noatime'"),
        ("ext4(mount='a', mount='b')", "", "mount='b'"),
        ("ext4(mkfs='-L \"x')", "mkfs: .*No closing quotation", "mkfs='-L \"x'"),
        ("ext4 |", "stack", None),
        ("ext4 & xfs", "layer", "ext4 & xfs"),
        ("a | (b | c)", "parentheses", "b | c"),
        ("ext4 | xfs", "^xfs .*block device.*ext4 .*directory.*`loop`", "xfs"),
        (
            "luks | gocryptfs",
            "^gocryptfs .*directory.*luks .*block device.*`ext2`, `ext3`, `ext4`",
            "gocryptfs",
        ),
        ("ümlaut | ext4", "'ümlaut'", "ümlaut"),
        ("name = luks | ext5", "'ext5'", "ext5"),
        ("x = ext4 @ queue/scheduler", "KEY=VALUE", "queue/scheduler"),
        ("ext4 @", "KEY=VALUE", None),
        ("ext4 @ vm.swappiness=1,", "KEY=VALUE", None),
        ("ext4 @ vm.swappiness=a b", "KEY=VALUE", "vm.swappiness=a b"),
        ("ext4 @ vm.swappiness=1, vm.swappiness=2", r"'vm\.swappiness'", "vm.swappiness=2"),
        ("ext4 @ vm.swapiness=1", r"'vm\.swapiness'.*\bvm\.swappiness\b", "vm.swapiness=1"),
        ("ext5 @ vm.swappiness=1", "'ext5'", "ext5"),
        ("ext4 @ queue/nomerges=1, top/nomerges=2", r"\bqueue/.*\btop/nomerges\b", "top/nomerges=2"),
        # of several devices
        ("pool(1) | btrfs", r"pool: devices: .*\b2\b.*\b1\b", "1"),
        ("pool('2') | btrfs", r"pool\(option=", "'2'"),
        ("pool(2, devices=3) | btrfs", "'devices'", "2"),
        ("luks(256) | ext4", r"luks\(option=", "256"),
        ("pool(2) | xfs(mkfs='-f') | bind", r"^xfs .*\bpool\b", "xfs(mkfs='-f')"),
        ("luks | pool(2) | btrfs", "lowest", "pool(2)"),
        ("btrfs(data='raid1')", r"btrfs: data: 'raid1' .*\b2\b.*pool\(2\)", "data='raid1'"),
        (
            "pool(2) | btrfs(metadata='raid1c3')",
            r"btrfs: metadata: 'raid1c3' .*\b3\b.*pool\(3\)",
            "metadata='raid1c3'",
        ),
        # of features of the filesystem below
        ("xfs | fscrypt", r"^fscrypt .*\bencryption\b.*`ext4`.*`f2fs`.*\bxfs\b", "xfs"),
        ("tmpfs | fscrypt", r"^fscrypt .*\bencryption\b.*`ext4`.*`f2fs`.*\btmpfs\b", "tmpfs"),
        (
            "luks | ext4(mkfs='-O ^encrypt') | fscrypt",
            r"^fscrypt .*\bencryption\b.*`ext4`.*`f2fs`.*mkfs: '-O \^encrypt'.* \^encrypt\b",
            "mkfs='-O ^encrypt'",
        ),
    ],
)
def test_mistakes_are_told_with_a_caret_under_them(text: str, facts: str, marked: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        Stack.parse(text, BUILT_IN)
    assert re.search(facts, caught.value.message)
    if marked is not None and marked:
        assert text[caught.value.start : caught.value.end] == marked
        shown, carets = str(caught.value).splitlines()[-2:]
        assert shown[carets.index("^") : carets.rindex("^") + 1] == marked


def test_a_whole_number_is_a_number() -> None:
    @dataclass(frozen=True)
    class Waiting(Ext4):
        seconds: float = option(0.5, "a time")

    for text in "waiting(seconds=2)", "waiting(seconds=1.5)":
        assert str(Stack.parse(text, {"waiting": Waiting})) == text.replace("waiting", "ext4")
    with pytest.raises(SpecError, match=r"seconds: .*\bnumber\b.*\bTrue\b"):
        Stack.parse("waiting(seconds=True)", {"waiting": Waiting})


@pytest.mark.parametrize(
    "key",
    [
        *("kernel.core_pattern", "kernel.modprobe", "kernel.sysrq", "kernel.panic", "vm.panic_on_oom"),
        *("fs.suid_dumpable", "fs.xfs.panic_mask", "vm.drop_caches", "vm.overcommit_memory", "vm.min_free_kbytes"),
        *("queue/write_cache", "queue/iostats", "queue/../x", "top/..", "../queue/scheduler", "/sys/power/state"),
        "fs.binfmt_misc.register",
        *("zfs/zfs_deadman_failmode", "md_mod/start_dirty_degraded", "kernel/panic", "module/fuse", "cpu/online"),
        *("vm./x", "vm..", "vm", "queue/", "/", ".", "vm.swappiness/", "vm/swappiness", "queue.scheduler"),
    ],
)
def test_keys_that_are_not_on_the_list_are_refused(key: str) -> None:
    with pytest.raises(SpecError, match=re.escape(repr(key))):
        Stack.parse(f"ext4 @ {key}=1", BUILT_IN)


@given(st.text("_./-" + string.ascii_letters + string.digits, min_size=1, max_size=20))
def test_any_other_key_is_refused(key: str) -> None:
    assume(key not in keys.SYSCTLS and key.partition("/")[0] not in {"queue", "top", "cpu", *keys.PARAMETERS})
    assert keys.why_refused(key) is not None


def test_settings_of_a_device_need_a_block_device(tmp_path: Path) -> None:
    on_directory = DirectoryDevice(tmp_path)
    for text in "bind @ vm.swappiness=1", "loop | ext4 @ top/nomerges=1":
        Stack.parse(text, BUILT_IN).check_device(on_directory, BUILT_IN)
    for text in "x = bind @ queue/nomerges=1", "bind @ vm.swappiness=1, top/nomerges=1":
        with pytest.raises(SpecError, match=r"nomerges .*block device.*\bdir:") as caught:
            Stack.parse(text, BUILT_IN).check_device(on_directory, BUILT_IN, text)
        assert text[caught.value.start : caught.value.end].endswith("nomerges=1")


def test_the_device_must_carry_the_lowest_layer(tmp_path: Path) -> None:
    on_directory = DirectoryDevice(tmp_path)
    Stack.parse("gocryptfs", BUILT_IN).check_device(on_directory, BUILT_IN)
    Stack.parse("loop | ext4", BUILT_IN).check_device(on_directory, BUILT_IN)
    Stack.parse("luks | ext4", BUILT_IN).check_device(LoopDevice(1 << 30), BUILT_IN)
    with pytest.raises(SpecError, match=r"^ext4 .*block device.*\bdir:.*directory.*`loop`"):
        Stack.parse("ext4", BUILT_IN).check_device(on_directory, BUILT_IN)
    with pytest.raises(SpecError, match=r"^gocryptfs .*directory.*\bloop\b.*block device"):
        Stack.parse("gocryptfs", BUILT_IN).check_device(LoopDevice(1 << 30), BUILT_IN)
