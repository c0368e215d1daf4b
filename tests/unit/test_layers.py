"""The commands that layers give, recorded instead of run: no root, no device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_fsstack import host
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.stack import Block, Layer, Secret, Site, Stack

KNOWN: dict[str, type[Layer]] = {layer.name: layer for layer in BUILT_IN}


class NoJournal:
    """A journal that is not kept."""

    @contextmanager
    def entry(self, kind: str, **facts: object) -> Iterator[None]:
        yield


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    recorded: list[str] = []

    def run(*argv: object, **keywords: object) -> str:
        recorded.append(" ".join(map(str, argv)))
        for fd in keywords.get("fds", ()):  # type: ignore[attr-defined]
            recorded.append(f"{len(os.read(fd, 4096))} secret bytes")
        return ""

    monkeypatch.setattr(host, "run", run)
    return recorded


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, NoJournal())  # type: ignore[arg-type]


def create(text: str, site: Site) -> None:
    checks: list[None] = []
    (layer,) = Stack.parse(text, KNOWN).layers
    layer.create(Block(Path("/dev/fake"), lambda: checks.append(None)), site)
    assert len(checks) == 2, "the guard is asked before the wipe, and again at the last moment"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ext4", "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard /dev/fake"),
        (
            "ext4(mkfs='-b 4096 -E stride=128')",
            "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard,stride=128 -b 4096 /dev/fake",
        ),
        (
            "ext4(mkfs='-E lazy_itable_init=1 -Ediscard')",
            "mkfs.ext4 -q -F -E lazy_journal_init=0,lazy_itable_init=1,discard /dev/fake",
        ),
        (
            "ext2(mkfs='-L \"two words\"')",
            "mkfs.ext2 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard -L two words /dev/fake",
        ),
        ("xfs", "mkfs.xfs -q -f -K /dev/fake"),
        ("btrfs(mkfs='-m single')", "mkfs.btrfs -q -f -K -m single /dev/fake"),
    ],
)
def test_mkfs_gets_our_defaults_and_the_users_options(
    text: str, expected: str, commands: list[str], site: Site
) -> None:
    create(text, site)
    assert commands == ["wipefs -aq /dev/fake", expected]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("ext4", None),
        ("ext4(mount='noatime,discard')", "noatime,discard"),
        ("btrfs", "nodiscard"),
        ("btrfs(compress='zlib', mount='ssd')", "nodiscard,compress=zlib,ssd"),
        ("btrfs(mount='discard=async')", "discard=async"),
    ],
)
def test_mount_gets_the_options_verbatim(text: str, options: str | None, commands: list[str], site: Site) -> None:
    (layer,) = Stack.parse(text, KNOWN).layers
    with layer.opened(Block(Path("/dev/fake"), lambda: None), site, 1) as place:
        assert place.path == site.directory / f"1-{layer.name}"
    words = f"-o {options} " if options else ""
    assert commands == [f"mount -t {layer.name} {words}/dev/fake {place.path}", f"umount {place.path}"]


def test_luks_gets_its_passphrase_by_a_descriptor(commands: list[str], site: Site) -> None:
    create("luks(cipher='serpent-xts-plain64', key_size=256, sector_size=4096, format='--label x')", site)
    wipe, written, secret = commands
    assert wipe == "wipefs -aq /dev/fake"
    assert written.startswith(
        "cryptsetup --batch-mode luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000"
    )
    assert (
        "--cipher serpent-xts-plain64 --key-size 256 --sector-size 4096 --label x --key-file /proc/self/fd/" in written
    )
    assert secret == "64 secret bytes"


def test_a_secret_never_shows_itself() -> None:
    secret = Secret()
    with secret.passphrase() as fd:
        text = os.read(fd, 100).decode()
    assert text not in repr(secret) + str(secret) + repr(Site(Path("/"), NoJournal(), secret))  # type: ignore[arg-type]
    with secret.key(64) as first, secret.key(64) as again, Secret().key(64) as other:
        keys = [os.read(fd, 100) for fd in (first, again, other)]
    assert keys[0] == keys[1] != keys[2]


def test_what_holds_a_refused_device_is_not_written_to(commands: list[str], site: Site) -> None:
    def refuse() -> None:
        raise PermissionError("mounted")

    (layer,) = Stack.parse("ext4", KNOWN).layers
    with pytest.raises(PermissionError, match="mounted"):
        layer.create(Block(Path("/dev/fake"), refuse), site)
    assert commands == []


@pytest.mark.parametrize("layer", BUILT_IN, ids=lambda layer: layer.name)
def test_every_layer_is_documented(layer: type[Layer]) -> None:
    assert layer.__doc__
    assert layer.takes
    for name, field in layer.options().items():
        assert field.metadata["doc"], name
