"""The commands that layers give, recorded instead of run: no root, no device."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.layers import BUILT_IN, kernel_encryption, stacked
from pytest_fsstack.machine import commands
from pytest_fsstack.stack.model import Block, Directory, Layer, Place, Secret, Site, Stack
from pytest_fsstack.stack.spec import SpecError
from tests.toolkit import NotedJournal


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    recorded: list[str] = []

    def run(*argv: object, fds: Sequence[int] = (), **keywords: object) -> str:
        recorded.append(" ".join(map(str, argv)))
        for fd in fds:
            recorded.append(f"{len(os.read(fd, 4096))} secret bytes")
        return ""

    monkeypatch.setattr(commands, "run", run)
    return recorded


def create(text: str, site: Site) -> None:
    checks: list[None] = []
    (layer,) = Stack.parse(text, BUILT_IN).layers
    layer.create(Block(Path("/dev/fake"), lambda: checks.append(None)), site)
    assert len(checks) == 2, "the guard is asked before the wipe, and again at the last moment"


def test_luks_gets_its_passphrase_by_a_descriptor(ran: list[str], site: Site) -> None:
    create("luks(cipher='serpent-xts-plain64', key_size=256, sector_size=4096, format='--label x')", site)
    wipe, written, secret = ran
    assert wipe == "wipefs -aq /dev/fake"
    assert written.startswith(
        "cryptsetup --batch-mode luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000"
    )
    assert (
        "--cipher serpent-xts-plain64 --key-size 256 --sector-size 4096 --label x --key-file /proc/self/fd/" in written
    )
    assert secret == "64 secret bytes"


def opened(text: str, site: Site) -> Place:
    """Create a layer on the site's directory and open it."""
    (layer,) = Stack.parse(text, BUILT_IN).layers
    below = Directory(site.directory)
    layer.create(below, site)
    with layer.opened(below, site, 1) as place:
        return place


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch, ran: list[str]) -> list[str]:
    @contextmanager
    def served(target: Path, site: Site, *argv: object, **keywords: Any) -> Iterator[Directory]:
        variables = [f"{name}={value}" for name, value in (keywords.get("env") or {}).items()]
        ran.append(" ".join([*variables, *map(str, argv)]))
        if keywords.get("stdin") is not None:
            ran.append(f"{len(os.read(keywords['stdin'], 4096))} secret bytes on stdin")
        yield Directory(target)

    monkeypatch.setattr(stacked, "served", served)
    return ran


def without_descriptors(ran: list[str], site: Site) -> list[str]:
    return [re.sub(r"/fd/\d+", "/fd/N", command).replace(str(site.directory), "DIR") for command in ran]


def test_cryfs_gets_its_options_and_asks_nothing(daemons: list[str], site: Site) -> None:
    opened("cryfs(cipher='aes-256-gcm', blocksize=32768, mount='-o noatime')", site)
    environment = "CRYFS_FRONTEND=noninteractive CRYFS_NO_UPDATE_CHECK=true CRYFS_LOCAL_STATE_DIR=DIR/cryfs.state"
    words = "--cipher aes-256-gcm --blocksize 32768 -o noatime"
    assert without_descriptors(daemons, site) == [
        f"{environment} cryfs -f {words} DIR/cryfs.ciphertext DIR/1-cryfs",
        "64 secret bytes on stdin",
    ]


def test_securefs_gets_its_options_and_its_key_by_a_descriptor(daemons: list[str], site: Site) -> None:
    opened("securefs(format=2, block_size=8192, init='--iv-size 16', mount='--noflock')", site)
    create, secret, mount = without_descriptors(daemons, site)
    assert create == (
        "securefs create --pbkdf pkcs5-pbkdf2-hmac-sha256 --rounds 1000 --format 2 --block-size 8192 --iv-size 16 "
        "--keyfile /proc/self/fd/N DIR/securefs.ciphertext"
    )
    assert secret == "64 secret bytes"
    assert mount == "securefs mount --noflock --keyfile /proc/self/fd/N DIR/securefs.ciphertext DIR/1-securefs"


def test_a_reverse_view_is_of_the_whole_directory_below(daemons: list[str], site: Site) -> None:
    opened("gocryptfs(reverse=True, plaintextnames=True)", site)
    create, _, mount = without_descriptors(daemons, site)
    assert create == "gocryptfs -q -init -scryptn 10 -plaintextnames -passfile /proc/self/fd/N -reverse DIR"
    assert mount == "gocryptfs -q -fg -passfile /proc/self/fd/N -reverse DIR DIR/1-gocryptfs"
    assert list(site.directory.glob("*.ciphertext")) == []


def test_overlay_has_its_parts_in_the_directory_below(ran: list[str], site: Site) -> None:
    opened("overlay", site)
    opened_with_more = "overlay(lower='/usr/share:/usr/lib', mount='metacopy=on')"
    (layer,) = Stack.parse(opened_with_more, BUILT_IN).layers
    with layer.opened(Directory(site.directory), site, 2):
        pass
    parts = "upperdir=upper,workdir=work"
    mounts = [line for line in without_descriptors(ran, site) if not line.startswith("umount")]
    assert mounts == [
        f"mount -t overlay -o lowerdir=lower,{parts} overlay DIR/1-overlay",
        f"mount -t overlay -o lowerdir=/usr/share:/usr/lib,{parts},metacopy=on overlay DIR/2-overlay",
    ]
    assert sorted(path.name for path in (site.directory / "overlay").iterdir()) == ["lower", "upper", "work"]


def test_what_shows_through_an_overlay_may_be_on_the_stack_itself(ran: list[str], site: Site) -> None:
    opened("overlay(lower='app:/usr:base')", site)
    assert " -o lowerdir=../app:/usr:../base,upperdir=upper,workdir=work " in without_descriptors(ran, site)[0]
    assert {path.name for path in site.directory.iterdir()} >= {"app", "base", "overlay"}


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
    text: str, options: str, keys: int, ran: list[str], site: Site
) -> None:
    opened(text, site)
    session, *secrets, umount = without_descriptors(ran, site)
    # What the kernel's structure has: include/linux/ecryptfs.h.
    assert secrets == ["740 secret bytes"] * keys
    for name, signature in zip("AB", re.findall(r"sig=([0-9a-f]{16})", session)):
        assert f" {signature} /proc/self/fd/N " in session
        session = session.replace(signature, name)
    assert session.startswith("keyctl session - sh -euc ")
    assert session.endswith(f" -- -i -t ecryptfs -o {options} DIR/ecryptfs.ciphertext DIR/1-ecryptfs")
    assert umount == "umount DIR/1-ecryptfs"


def test_fscrypt_adds_its_key_and_removes_it(ran: list[str], site: Site) -> None:
    opened("fscrypt(contents='Adiantum', policy='-f 0x4')", site)
    key = kernel_encryption.Fscrypt()._identifier(site)
    assert without_descriptors([line.replace(key, "KEY") for line in ran], site) == [
        "xfs_io -c enckey_status KEY DIR",
        "xfs_io -c set_encpolicy -v 2 -c 9 -n 9 -f 0x4 KEY DIR/fscrypt",
        "xfs_io -c add_enckey DIR",
        "xfs_io -c enckey_status KEY DIR",
        "xfs_io -c rm_enckey KEY DIR",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gocryptfs(reverse=True, xchacha=True)", "xchacha: does not go with reverse"),
        ("gocryptfs(aessiv=True, xchacha=True)", "xchacha: does not go with aessiv"),
        ("securefs(format=5)", "format: must be 1, 2, 3 or 4 (got 5)"),
        ("ecryptfs(key_bytes=0)", "key_bytes: must be a number of bytes such as 16 or 32 (got 0)"),
        ("fscrypt(contents='Adiantum', filenames='AES-256-CTS')", "Adiantum goes with Adiantum (got AES-256-CTS)"),
        ("fscrypt(filenames='AES-128-CTS')", "AES-256-XTS goes with AES-256-CTS or AES-256-HCTR2 (got AES-128-CTS)"),
        ("overlay(lower='/usr:../lib')", "a name for a directory in the one below (got ../lib)"),
        ("overlay(lower='overlay')", "a name for a directory in the one below (got overlay)"),
    ],
)
def test_options_that_make_no_sense_together_are_told(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        Stack.parse(text, BUILT_IN)


def test_a_secret_never_shows_itself() -> None:
    secret = Secret()
    with secret.passphrase() as fd:
        text = os.read(fd, 100).decode()
    assert text not in repr(secret) + str(secret) + repr(Site(Path("/"), NotedJournal(), secret))
    with secret.key(64) as first, secret.key(64) as again, Secret().key(64) as other:
        keys = [os.read(fd, 100) for fd in (first, again, other)]
    assert keys[0] == keys[1] != keys[2]


def test_what_holds_a_refused_device_is_not_written_to(ran: list[str], site: Site) -> None:
    def refuse() -> None:
        raise PermissionError("mounted")

    (layer,) = Stack.parse("ext4", BUILT_IN).layers
    with pytest.raises(PermissionError, match="mounted"):
        layer.create(Block(Path("/dev/fake"), refuse), site)
    assert ran == []


@pytest.mark.parametrize("layer", BUILT_IN.values(), ids=lambda layer: layer.name)
def test_every_layer_is_documented(layer: type[Layer]) -> None:
    assert layer.__doc__
    assert layer.takes
    for name, field in layer.options().items():
        assert field.metadata["doc"], name


@pytest.mark.parametrize("layer", BUILT_IN.values(), ids=lambda layer: layer.name)
def test_every_layer_has_an_example_with_it(layer: type[Layer]) -> None:
    stack = Stack.parse(layer.example_stack(), BUILT_IN)
    assert layer in {type(each) for each in stack.layers}
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
