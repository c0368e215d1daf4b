"""The commands that layers give, recorded instead of run: no root, no device."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN, kernel_encryption
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.journal import Fact, Kind, OpenEntry
from pytest_fsstack.machine.port import Word
from pytest_fsstack.preflight.recording import RecordedDaemon, RecordingJournal, nothing
from pytest_fsstack.stack.layer import Layer
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, BuildContext, Directory, Place, Secret
from pytest_fsstack.stack.spec import SpecError
from tests.unit.layers.conftest import LayerMachine, only


def opened(text: str, context: BuildContext) -> Place:
    """Create a layer on the directory and open it."""
    layer, below = only(text), Directory(context.directory)
    layer.create(below, context)
    with layer.opened(below, context) as place:
        opened_place: Place = place
        return opened_place


def test_cryfs_gets_its_options_and_asks_nothing(machine: LayerMachine, context: BuildContext) -> None:
    opened("cryfs(cipher='aes-256-gcm', blocksize=32768, mount='-o noatime')", context)
    environment = "CRYFS_FRONTEND=noninteractive CRYFS_NO_UPDATE_CHECK=true CRYFS_LOCAL_STATE_DIR=DIR/cryfs.state"
    words = "--cipher aes-256-gcm --blocksize 32768 -o noatime"
    assert machine.taken() == [
        f"{environment} cryfs -f {words} DIR/cryfs.ciphertext DIR/1-cryfs <&SECRET &",
        "umount DIR/1-cryfs",
    ]
    assert machine.secrets == [64]


def test_securefs_gets_its_options_and_its_key_by_a_descriptor(machine: LayerMachine, context: BuildContext) -> None:
    opened("securefs(format=2, block_size=8192, init='--iv-size 16', mount='--noflock')", context)
    assert machine.taken() == [
        "securefs create --pbkdf pkcs5-pbkdf2-hmac-sha256 --rounds 1000 --format 2 --block-size 8192 --iv-size 16 "
        "--keyfile /proc/self/fd/SECRET DIR/securefs.ciphertext",
        "securefs mount --noflock --keyfile /proc/self/fd/SECRET DIR/securefs.ciphertext DIR/1-securefs &",
        "umount DIR/1-securefs",
    ]
    assert machine.secrets == [64, 64]


def test_a_reverse_view_is_of_the_whole_directory_below(machine: LayerMachine, context: BuildContext) -> None:
    opened("gocryptfs(reverse=True, plaintextnames=True)", context)
    assert machine.taken() == [
        "gocryptfs -q -init -scryptn 10 -plaintextnames -passfile /proc/self/fd/SECRET -reverse DIR",
        "gocryptfs -q -fg -passfile /proc/self/fd/SECRET -reverse DIR DIR/1-gocryptfs &",
        "umount DIR/1-gocryptfs",
    ]
    assert list(context.directory.glob("*.ciphertext")) == []


def test_overlay_has_its_parts_in_the_directory_below(machine: LayerMachine, context: BuildContext) -> None:
    opened("overlay", context)
    with only("overlay(lower='/usr/share:/usr/lib', mount='metacopy=on')").opened(
        Directory(context.directory), context
    ):
        pass
    parts = "upperdir=upper,workdir=work"
    mounts = [line for line in machine.taken() if not line.startswith("umount")]
    assert mounts == [
        f"(cd DIR/overlay && mount -t overlay -o lowerdir=lower,{parts} overlay DIR/1-overlay)",
        f"(cd DIR/overlay && mount -t overlay -o lowerdir=/usr/share:/usr/lib,{parts},metacopy=on overlay "
        "DIR/1-overlay)",
    ]
    assert sorted(path.name for path in (context.directory / "overlay").iterdir()) == ["lower", "upper", "work"]


@pytest.mark.parametrize(
    ("text", "pack"),
    [
        ("squashfs", "mksquashfs DIR/squashfs/empty DIR/squashfs/image -noappend -quiet -no-progress -comp gzip"),
        (
            "squashfs(compress='zstd:19', source='/usr', mkfs='-b 64K')",
            "mksquashfs /usr DIR/squashfs/image -noappend -quiet -no-progress -comp zstd -Xcompression-level 19 -b 64K",
        ),
        (
            "squashfs(compress='none')",
            "mksquashfs DIR/squashfs/empty DIR/squashfs/image -noappend -quiet -no-progress -noI -noD -noF -noX",
        ),
        ("erofs(compress='lz4hc:9', source='/usr')", "mkfs.erofs --quiet -zlz4hc,9 DIR/erofs/image /usr"),
        ("erofs", "mkfs.erofs --quiet DIR/erofs/image DIR/erofs/empty"),
    ],
)
def test_an_image_is_packed_once_and_mounted_read_only(
    text: str, pack: str, machine: LayerMachine, context: BuildContext
) -> None:
    name = only(text).name
    place = opened(text, context)
    assert isinstance(place, Directory)
    assert place.writable == context.directory
    assert machine.taken() == [pack, f"mount -t {name} -o ro LOOP DIR/1-{name}", f"umount DIR/1-{name}"]


def test_an_overlay_on_an_image_writes_below_the_image(machine: LayerMachine, context: BuildContext) -> None:
    overlay, image = only("overlay"), Directory(context.directory / "image", writable=context.directory)
    overlay.create(image, context)
    with overlay.opened(image, context):
        pass
    assert machine.taken()[0].startswith("(cd DIR/overlay && mount -t overlay -o lowerdir=../image,upperdir=upper,")


def test_what_shows_through_an_overlay_may_be_on_the_stack_itself(machine: LayerMachine, context: BuildContext) -> None:
    opened("overlay(lower='app:/usr:base')", context)
    assert " -o lowerdir=../app:/usr:../base,upperdir=upper,workdir=work " in machine.taken()[0]
    assert {path.name for path in context.directory.iterdir()} >= {"app", "base", "overlay"}


@pytest.mark.parametrize(
    ("text", "options", "keys"),
    [
        ("ecryptfs", "ecryptfs_sig=A,ecryptfs_fnek_sig=B,ecryptfs_cipher=aes,ecryptfs_key_bytes=16", 2),
        (
            "ecryptfs(cipher='twofish', key_bytes=32, fnek=False, passthrough=True, mount='ecryptfs_xattr')",
            "ecryptfs_sig=A,ecryptfs_cipher=twofish,ecryptfs_key_bytes=32,ecryptfs_passthrough,ecryptfs_xattr",
            1,
        ),
    ],
)
def test_ecryptfs_mounts_in_a_keyring_of_its_own(
    text: str, options: str, keys: int, machine: LayerMachine, context: BuildContext
) -> None:
    opened(text, context)
    session, umount = machine.taken()
    # What the kernel's structure has: include/linux/ecryptfs.h.
    assert machine.secrets == [740] * keys
    for name, signature in zip("AB", re.findall(r"sig=([0-9a-f]{16})", session)):
        assert f" {signature} /proc/self/fd/SECRET " in session
        session = session.replace(signature, name)
    assert session.startswith("keyctl session - sh -euc ")
    assert session.endswith(f" -- -i -t ecryptfs -o {options} DIR/ecryptfs.ciphertext DIR/1-ecryptfs")
    assert umount == "umount DIR/1-ecryptfs"


def test_fscrypt_adds_its_key_and_removes_it(machine: LayerMachine, context: BuildContext) -> None:
    opened("fscrypt(contents='Adiantum', policy='-f 0x4')", context)
    key = kernel_encryption.Fscrypt()._identifier(context)
    assert [line.replace(key, "KEY") for line in machine.taken()] == [
        "xfs_io -c 'enckey_status KEY' DIR",
        "xfs_io -c 'set_encpolicy -v 2 -c 9 -n 9 -f 0x4 KEY' DIR/fscrypt",
        "xfs_io -c add_enckey DIR <&SECRET",
        "xfs_io -c 'enckey_status KEY' DIR",
        "xfs_io -c 'rm_enckey KEY' DIR",
    ]
    assert machine.secrets == [64]


@pytest.mark.parametrize("busy", [0, 2, 1000])
def test_the_kernel_may_hold_a_file_for_a_moment_when_a_key_is_removed(
    busy: int, machine: LayerMachine, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter(range(1000))
    machine.answers = {
        **machine.answers,
        "xfs_io -c rm_enckey": lambda: "Removed encryption key, but files still busy" if next(tries) < busy else "",
    }
    monkeypatch.setattr(machine, "wait_until", commands.wait_until)
    monkeypatch.setattr(kernel_encryption, "_PATIENCE", 0.1)
    if busy == 1000:
        with pytest.raises(OSError, match=f"{context.directory}/fscrypt "):
            opened("fscrypt", context)
    else:
        opened("fscrypt", context)
        assert next(tries) == busy + 1


@pytest.mark.parametrize("init", ["-longnames=false", "--longnames", "-xchacha -longnames=false", "-o longnames=false"])
def test_an_option_of_gocryptfs_without_effect_on_a_new_volume_is_refused(init: str) -> None:
    with pytest.raises(SpecError, match=r"gocryptfs: init: longnames .*`mount`"):
        only(f"gocryptfs(init={init!r})")


def test_a_secret_never_shows_itself(journal: RecordingJournal) -> None:
    secret = Secret()
    with secret.passphrase() as fd:
        text = os.read(fd, 100).decode()
    assert text not in repr(secret) + str(secret) + repr(BuildContext(Path("/"), journal, secret))
    with secret.key(64) as first, secret.key(64) as again, Secret().key(64) as other:
        keys = [os.read(fd, 100) for fd in (first, again, other)]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("text", ["luks", "dmcrypt", "ecryptfs", "fscrypt", "gocryptfs"])
def test_no_traceback_of_a_failed_command_shows_a_key(
    text: str, machine: LayerMachine, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(argv: Sequence[Word], stdin: int | None = None, fds: Sequence[int] = (), *rest: object) -> str:
        if fds or stdin:
            raise commands.CommandError([text], 1, "")
        return ""

    monkeypatch.setattr(machine, "_record", failing)
    context.secret._memory[64:] = bytes(range(65, 97)) * ((len(context.secret._memory) - 64) // 32)
    with context.secret.passphrase() as passphrase, context.secret.key(144) as key:
        # The second key of ecryptfs begins at 72.
        forms = os.read(passphrase, 64).decode(), *(repr(os.read(key, 72)[:16])[2:-1] for _ in range(2))
    layer = only(text)
    below = Directory(context.directory) if Directory in layer.takes else Block(Path("/dev/fake"), nothing, machine)

    def build() -> None:
        layer.create(below, context)
        with layer.opened(below, context):
            pytest.fail("it is open")

    with pytest.raises(commands.CommandError) as caught:
        build()
    shown = "".join(repr(entry.frame.f_locals) for entry in caught.traceback[1:])
    assert [form for form in forms if form in shown] == []


class FullJournal(RecordingJournal):
    """A journal whose disk is full once a daemon has started."""

    @contextlib.contextmanager
    def entry(self, kind: Kind, **facts: Fact) -> Iterator[OpenEntry]:
        self._write({"facts": facts})
        with super().entry(kind, **facts) as entry:
            yield entry

    def _write(self, line: Mapping[str, object]) -> None:
        if "pid" in str(line):
            raise OSError(errno.ENOSPC, "the journal cannot be written")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The daemons that were ended."""
    daemons: list[str] = []
    monkeypatch.setattr(RecordedDaemon, "stop", lambda daemon, patience: daemons.append(daemon.argv[0]))
    monkeypatch.setattr(RecordedDaemon, "kill", lambda daemon: daemons.append(daemon.argv[0]))
    return daemons


@pytest.mark.parametrize("text", ["gocryptfs", "zfs"])
def test_a_daemon_that_the_journal_cannot_record_is_ended(
    text: str, machine: LayerMachine, device: Block, tmp_path: Path, ended: list[str]
) -> None:
    machine.filesystems.discard("zfs")
    context = BuildContext(tmp_path, FullJournal(machine), depth=1)
    layer = only(text)
    below = device if Block in layer.takes else Directory(tmp_path)
    with pytest.raises(OSError, match="the journal cannot be written"), layer.opened(below, context):
        pytest.fail("it is open")
    assert ended == ["zfs-fuse" if text == "zfs" else text]


@pytest.mark.parametrize("text", ["gocryptfs", "zfs"])
def test_a_daemon_whose_connection_vanishes_before_it_is_aborted_is_ended(
    text: str,
    machine: LayerMachine,
    device: Block,
    tmp_path: Path,
    ended: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def vanished(*_: object) -> bool:
        raise FileNotFoundError

    monkeypatch.setattr(mounts, "abort_fuse", vanished)
    machine.filesystems.discard("zfs")
    context = BuildContext(tmp_path, RecordingJournal(machine), depth=1)
    layer = only(text)
    below = device if Block in layer.takes else Directory(tmp_path)
    with layer.opened(below, context):
        monkeypatch.setattr(mounts.FuseWatch, "answer", lambda *_: None)
    assert ended == ["zfs-fuse" if text == "zfs" else text]


@pytest.mark.parametrize("layer", BUILT_IN.values(), ids=lambda layer: layer.name)
def test_every_layer_has_an_example_with_it(layer: type[Layer]) -> None:
    stack = Stack.parse(layer.example_stack(), BUILT_IN)
    assert layer in {type(standing) for standing in stack.layers}
    # On a device, as everywhere in the documentation.
    assert Block in stack.layers[0].takes
    # As one would write it: no option that has its default anyway.
    assert str(stack) == layer.example_stack()


@pytest.mark.parametrize(
    ("takes", "gives", "expected"),
    [
        ((Block,), Directory, "new"),
        ((Block,), Block, "new | ext4"),
        ((Directory,), Directory, "ext4 | new"),
        ((Directory,), Block, "ext4 | new | ext4"),
        ((Block, Directory), Directory, "new"),
    ],
)
def test_a_layer_that_names_no_example_gets_one(
    takes: tuple[type[Block] | type[Directory], ...], gives: type[Block] | type[Directory], expected: str
) -> None:
    layer: type[Layer] = type("New", (Layer,), {"name": "new", "takes": takes, "gives": gives})
    assert layer.example_stack() == expected
    assert str(Stack.parse(layer.example_stack(), {**BUILT_IN, "new": layer})) == expected
