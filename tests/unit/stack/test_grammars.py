"""Options as layers declare them: some words are refused by their meaning, and others are not looked up."""

from __future__ import annotations

import getopt
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.passthrough import PlainDirectory
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack import outside, words
from pytest_fsstack.stack.build import BuildError, build
from pytest_fsstack.stack.layer import Layer, OptionError, option
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.stack.spec import SpecError


@dataclass(frozen=True)
class Undeclared(PlainDirectory):
    """A layer of somebody else, who declares nothing."""

    name: ClassVar = "undeclared"
    text: str | None = option(None, "words")


LAYERS: dict[str, type[Layer]] = {**BUILT_IN, "undeclared": Undeclared}

#: Names in the working directory; each is a link to a file elsewhere.
LINKS = ("subvol=x", "disk", "x", "data", "zstd:3", "noatime", "4096", "upper", "-z", "ä", "two words", "k=v,w")


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with links out of it."""
    place = tmp_path_factory.mktemp("here")
    (place / "victim").touch()
    (place / "work").mkdir()
    for name in LINKS:
        (place / "work" / name).symlink_to(place / "victim")
    before = Path.cwd()
    os.chdir(place / "work")
    yield place / "work"
    os.chdir(before)


def is_refused(layer: str, **options: Any) -> bool:
    """Whether the check refuses the text; options that make no sense for another reason are left aside."""
    try:
        LAYERS[layer](**options).check_words()
    except OptionError:
        return True
    return False


REFUSED = [
    "btrfs(mkfs='-d raid1 -m raid1 subvol=x')",
    "btrfs(mkfs='--rootdir x')",
    "btrfs(mkfs='--root=nothing')",
    "btrfs(mkfs='-qr nothing')",
    "btrfs(mount='subvol=../../etc')",
    "btrfs(mount='device=nothing')",
    "btrfs(mount='subvol=a,device=/nothing')",
    """btrfs(mount='subvol="a,device=/nothing"')""",
    "xfs(mkfs='-l logdev=subvol=x,size=64m', mount='logdev=subvol=x')",
    "xfs(mkfs='-l size=64m,logdev=nothing')",
    "xfs(mkfs='-d name=nothing')",
    "xfs(mkfs='-p nothing')",
    "xfs(mount='logdev=subvol=x')",
    "xfs(mount='rtdev=nothing')",
    "xfs(mount='subvol=x')",
    "ext4(mkfs='nothing')",
    "ext4(mkfs='-q -- nothing')",
    "ext4(mkfs='-z nothing')",
    "ext4(mkfs='-znothing')",
    "ext4(mkfs='-qz nothing')",
    "ext4(mkfs='-d nothing')",
    "ext4(mkfs='-J size=4,device=nothing')",
    "ext4(mkfs='-E stride=4,mount_opts=journal_path=nothing')",
    "ext4(mkfs='--new -L disk')",
    "ext4(mkfs='-Y disk')",
    "ext4(mkfs='-Yqcdisk')",
    "ext4(mount='journal_path=nothing')",
    "ext4(mount='loop=nothing')",
    "ext4(mount='bind')",
    "ext4(mount='X-mount.subdir=nothing')",
    "f2fs(mkfs='-qcdisk')",
    "f2fs(mkfs='-qc nothing')",
    "jfs(mkfs='-j nothing')",
    "reiserfs(mkfs='--journal-dev nothing')",
    "reiserfs(mount='jdev=nothing')",
    "vfat(mkfs='-m nothing')",
    "zfs(mkfs='nothing')",
    "zfs(mkfs='-o cachefile=nothing')",
    "zfs(mkfs='-R /nothing')",
    "zfs(daemon='--pid nothing')",
    "luks(open='--header nothing')",
    "luks(format='nothing')",
    "luks(format='--hw-opal-only')",
    "luks(format='--key-file=nothing')",
    "integrity(format='--data-device nothing')",
    "lvm(vgcreate='--con-fig x=1')",
    "lvm(pvcreate='--conf x=1')",
    "lvm(lvcreate='nothing')",
    r"flakey(features='\"a\n0 8 linear 8:0 0\"')",
    "gocryptfs(mount='-cpuprofile nothing')",
    "gocryptfs(mount='--memprofile=nothing')",
    "gocryptfs(mount='-ctlsock nothing')",
    "gocryptfs(mount='-o passfile=nothing')",
    "gocryptfs(init='-extpass nothing')",
    "gocryptfs(mount='-trace nothing')",
    "sshfs(mount='-o ssh_command=nothing')",
    "sshfs(mount='-oProxyCommand=nothing')",
    "sshfs(mount='-o idmap=file,uidfile=nothing')",
    "sshfs(mount='-F nothing')",
    "nfs(mount='addr=192.0.2.1')",
    "nfs(mount='mountport=1')",
    "nfs(mount='hard')",
    "samba(mount='credentials=nothing')",
    "samba(mount='pass=nothing')",
    "samba(mount='ip=192.0.2.1')",
    "samba(mount='hard')",
    "encfs(mount='--extpass=nothing')",
    "encfs(mount='-o modules=subdir,subdir=nothing')",
    "cryfs(mount='--logfile nothing')",
    "cryfs(mount='--log=nothing')",
    "securefs(mount='--log nothing')",
    "ntfs3g(mount='usermapping=nothing')",
    "nilfs2(mount='gcpid=1')",
    "overlay(mount='upperdir=upper/../../..')",
    "overlay(mount='upperdir=nothing')",
    "overlay(mount='lowerdir+=nothing')",
    "overlay(mount='workdir=nothing')",
    "overlay(mount='metacopy=on,volatile')",
    "overlay(mount='fsync=volatile,index=on')",
    "f2fs(mount='checkpoint=disable')",
    "gocryptfs(mount='-idle 1s')",
    "gocryptfs(mount='-i=1s')",
    "gocryptfs(mount='-o idle=1s')",
    "encfs(mount='-i 1')",
    "encfs(mount='--reverse')",
    "encfs(mount='--rev')",
    "encfs(mount='--idle=1')",
    "encfs(mount='--idl=1')",
    "cryfs(mount='--unmount-idle 1')",
    "overlay(lower='/usr,upperdir=nothing')",
    "squashfs(mkfs='-pf nothing')",
    "squashfs(mkfs='-p nothing')",
    "squashfs(mkfs='-recovery-path nothing')",
    "squashfs(source='/usr/../root')",
    "erofs(mkfs='--block-list-file=nothing')",
    "erofs(mount='device=nothing')",
    "overlay(lower='/usr/../root')",
    "undeclared(text='subvol=x')",
    "undeclared(text='-qcdisk')",
    "undeclared(text='a/../b')",
    "undeclared(text='two words')",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_leads_out_is_refused_at_its_option(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        Stack.parse(text, LAYERS)
    name = text[caught.value.start : caught.value.end].partition("=")[0]
    assert f"{text.partition('(')[0]}: {name}: " in str(caught.value)


ALLOWED = [
    "btrfs(mount='subvol=x')",
    "btrfs(mount='subvol=/a/b,compress=zstd:3,noatime')",
    "btrfs(compress='zstd:3', mkfs='-d single -m dup -L disk --csum xxhash')",
    "ext4(mkfs='-b 4096 -L disk -O ^has_journal,x -E stride=128,stripe-width=128 -qT data')",
    "ext4(mkfs='-b4096 -Odir_index -Ldisk', mount='data=ordered,noatime,commit=30')",
    "xfs(mkfs='-m reflink=0 -d agcount=4,su=64k,sw=4 -l size=16m', mount='logbsize=256k')",
    "f2fs(mkfs='-l disk -O extra_attr,compression', mount='background_gc=on,compress_extension=*')",
    "zfs(mkfs='-o ashift=12 -O recordsize=16K -O atime=off', mount='noatime')",
    "luks(format='--label disk --pbkdf argon2id', open='--allow-discards', cipher='capi:xts(aes)-plain64')",
    "dmcrypt(cipher='xchacha12,aes-adiantum-plain64')",
    "gocryptfs(mount='-longnames=false')",
    "lvm(vgcreate='--physicalextentsize 1M', lvcreate='--readahead none', extents='50%VG')",
    "flakey(features='corrupt_bio_byte 32 r 1 0')",
    "gocryptfs(mount='-allow_other -o allow_other,noatime')",
    "nfs(mount='nconnect=4,rsize=65536,lookupcache=none,noac')",
    "samba(mount='seal,cache=none,actimeo=0,max_channels=2,multichannel,sec=ntlmssp')",
    "sshfs(mount='-C -o max_conns=4,dcache_timeout=1 -oRekeyLimit=1G', cipher='aes128-ctr')",
    "encfs(mount='-o allow_other')",
    "ntfs3g(mount='noatime,big_writes,fsname=disk')",
    "tmpfs(mount='size=50%,mode=0755,huge=always')",
    "fscrypt(policy='-f 0x8')",
    "overlay(lower='/usr:x', mount='metacopy=on,noatime')",
    "undeclared(text='corrupt 32 r 1 0 --size=4K')",
]


@pytest.mark.parametrize("text", ALLOWED)
def test_declared_words_are_allowed_where_files_have_the_same_names(text: str) -> None:
    Stack.parse(text, LAYERS)


#: A path that is outside of any stack.
ELSEWHERE = "/etc/hostname-of-nobody"

TEXTS = [
    (layer.name, name)
    for layer in BUILT_IN.values()
    for name, field in layer.options().items()
    if isinstance(field.default, str) and not field.metadata["choices"]
    # It may name a file elsewhere, which is run: see layers/test_binary.py.
    if name != "binary"
]


@pytest.mark.parametrize(("layer", "name"), TEXTS, ids=lambda word: str(word))
def test_each_text_option_of_each_layer(layer: str, name: str) -> None:
    more = ", kind='thin'" if name == "virtual_size" else ""
    with pytest.raises(SpecError, match=f"{layer}: {name}: .*{ELSEWHERE}"):
        Stack.parse(f"{layer}({name}='y={ELSEWHERE}'{more})", BUILT_IN)


@pytest.mark.parametrize("word", [r"\0", r"-L a\0b", r"\ud800", r"a=\udfff,b"])
def test_what_no_command_can_be_given_is_refused(word: str) -> None:
    with pytest.raises(SpecError, match=r"ext4: mkfs: .*\bbyte\b"):
        Stack.parse(f"ext4(mkfs='{word}')", BUILT_IN)


def test_a_word_of_hundreds_of_parts_is_refused_and_not_looked_through_for_minutes() -> None:
    with pytest.raises(SpecError, match=r"ext4: mkfs: .*\b5000\b"):
        Stack.parse(f"ext4(mkfs='--new {'a=b,' * 300}')", BUILT_IN)


def test_what_appears_after_the_stack_was_read_is_refused_before_anything_is_made(tmp_path: Path, here: Path) -> None:
    (tmp_path / "device").mkdir()
    stack = Stack.parse("undeclared(text='--log later')", LAYERS)
    (here / "later").touch()
    context = BuildContext(tmp_path, Journal(tmp_path / "journal", RealMachine()))
    with (
        pytest.raises(BuildError, match=r"undeclared: text: .*\blater\b"),
        build(stack, DirectoryDevice(tmp_path / "device"), context),
    ):
        pytest.fail("it was built")
    assert list((tmp_path / "device").iterdir()) == []


def test_each_declaration_is_one_of_an_option() -> None:
    for layer in BUILT_IN.values():
        assert layer.grammar.keys() <= layer.options().keys(), layer.name


# -- words that stop the machine -------------------------------------------------------------------------------------


def positions(grammar: words.Grammar) -> Iterator[str]:
    """Yield a pattern of each place in a grammar's texts where a word with a meaning can be, marked by {}."""
    if isinstance(grammar, words.Items):
        yield from ("{}", "x={}", "{}=x", "a,{}")
        for key, form in grammar._by_name.items():
            yield from (f"{key.replace('*', 'x')}={place}" for place in positions(form))
    elif isinstance(grammar, words.CommandLine):
        yield from ("--undeclared={}", "--undeclared {}", "--{}", "--x-{}=1")
        for option, form in grammar._by_name.items():
            for place in positions(form):
                yield f"{option} {place}"
                yield f"{option}{place}" if len(option) == 2 and not grammar._is_go else f"{option}={place}"
    elif isinstance(grammar, words.Words):
        yield from positions(grammar.form)
    elif isinstance(grammar, words.Value) and not grammar.free and grammar is not words.FLAG:
        yield "{}"


PLACES = [
    (layer.name, name, place)
    for layer in BUILT_IN.values()
    for name, field in layer.options().items()
    if name != "binary" and isinstance(field.default, str) and not field.metadata["choices"]
    for place in positions(layer.grammar.get(name, words.LOOKED_UP))
]


@pytest.mark.parametrize("word", ["panic", "panic_on_corruption", "restart-on-error", "bug"])
def test_no_layer_takes_a_word_that_stops_the_machine(word: str) -> None:
    """Every place in the grammar of every layer is tried."""
    assert len(PLACES) > 1000
    accepted = []
    for layer, name, place in PLACES:
        grammar = BUILT_IN[layer].grammar.get(name, words.LOOKED_UP)
        try:
            words.check(grammar, place.format(word))
            accepted.append((layer, name, place))
        except words.WordError:
            pass
    assert accepted == []


@pytest.mark.parametrize(
    "text",
    [
        "ext4(mount='errors=panic')",
        "ext4(mount='noatime,errors=panic,commit=5')",
        "ext4(mkfs='-e panic')",
        "ext4(mkfs='-epanic')",
        "ext3(mkfs='-qe panic')",
        """ext2(mkfs='-e pan"ic"')""",
        "btrfs(mount='fatal_errors=panic')",
        "btrfs(mount='fatal_errors=bug')",
        "f2fs(mount='errors=panic')",
        "nilfs2(mount='errors=panic')",
        "jfs(mount='errors=panic')",
        "vfat(mount='errors=panic')",
        "exfat(mount='errors=panic')",
        "reiserfs(mount='errors=panic')",
        "squashfs(mount='errors=panic')",
        "bcachefs(mkfs='--errors=panic')",
        "bcachefs(mount='errors=panic')",
        "zfs(mkfs='-o failmode=panic')",
        "flakey(features='panic_on_corruption')",
    ],
)
def test_a_word_that_stops_the_machine_is_refused_at_its_option(text: str) -> None:
    with pytest.raises(SpecError, match=r"(?i)\b(panic|bug)\w* stops the whole machine"):
        Stack.parse(text, LAYERS)


@pytest.mark.parametrize(
    "text",
    [
        "ext4(mkfs='-L panic -e remount-ro', mount='errors=remount-ro')",
        "btrfs(mkfs='-L panic', mount='subvol=panic')",
        "xfs(mkfs='-L debug', mount='noquota')",
        "ext4(mount='debug')",
    ],
)
def test_labels_and_other_reactions_are_allowed(text: str) -> None:
    Stack.parse(text, LAYERS)


# -- drawn -------------------------------------------------------------------------------------------------------------

_parts = st.sampled_from(
    (
        *LINKS,
        *("..", "../victim", "/etc/passwd", "/nothing", ".", "logdev", "device", "subvol", "upperdir", "raid1", "é"),
        *("=", ",", ":", "'", '"', "\\", " ", " ", "\t", "-", "-q", "-L", "-b", "-J", "-E", "-c", "--", "--new", "-Y"),
    )
)
_texts = st.lists(_parts, max_size=8).map("".join)
_drawn = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def leads_out(name: str) -> bool:
    """Whether a tool that opens the name gets what is not its own; a new name in the working directory is."""
    return bool(name) and (os.path.lexists(name) or ".." in name.split("/") or name.startswith("/"))


#: As mke2fs(8) of e2fsprogs hands it to getopt (misc/mke2fs.c).
_MKE2FS = "b:cd:e:g:i:jl:m:no:qr:s:t:vC:DE:FG:I:J:KL:M:N:O:R:ST:U:Vz:"


@given(text=_texts)
@example("-qcdisk disk")
@example("-L -z -z disk")
@_drawn
def test_mke2fs_opens_nothing_of_a_text_that_is_allowed(text: str) -> None:
    if is_refused("ext4", mkfs=text):
        return
    try:
        options, operands = getopt.gnu_getopt(shlex.split(text), _MKE2FS)
    except getopt.GetoptError:
        return  # so does mke2fs end, before it opens anything
    journals = [item for name, value in options if name == "-J" for item in value.split(",")]
    assert not operands
    assert not {name for name, _ in options} & {"-d", "-l", "-z"}
    assert not [item for item in journals if item.partition("=")[0] == "device"]


@given(text=_texts)
@example("noatime,logdev=subvol=x")
@_drawn
def test_a_mount_gets_no_device_of_a_text_that_is_allowed(text: str) -> None:
    for layer, keys in ("xfs", ("logdev", "rtdev")), ("btrfs", ("device",)), ("overlay", ("upperdir", "lowerdir")):
        if not is_refused(layer, mount=text):
            settings_of_mount = dict(item.partition("=")[::2] for item in text.split(","))
            assert not settings_of_mount.keys() & set(keys)
            assert layer == "btrfs" or not leads_out(settings_of_mount.get("subvol", ""))


@given(text=_texts)
@_drawn
def test_nothing_that_is_allowed_without_a_declaration_leads_out(text: str) -> None:
    if is_refused("undeclared", text=text):
        return
    pieces = [text, *text.split(), *re.split(r"[,=:'\"\\\s]+", text)]
    pieces += [word[index:] for word in text.split() if re.match("-[^-]", word) for index in range(1, len(word))]
    assert not [piece for piece in pieces if leads_out(piece)]


@given(text=st.text(max_size=30))
@_drawn
def test_no_text_is_too_odd_to_be_checked(text: str) -> None:
    for layer in BUILT_IN.values():
        for name, grammar in layer.grammar.items():
            try:
                words.check(grammar, text)
            except words.WordError as error:
                assert str(error), name


def test_a_word_of_a_directory_that_a_daemon_may_change_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(outside, "_WORKING", (Path(), tmp_path))
    assert is_refused("undeclared", text="--log=elsewhere")
    assert not is_refused("undeclared", text="--log=nowhere")
