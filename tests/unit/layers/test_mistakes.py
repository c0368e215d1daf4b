"""Options of layers that make no sense, with what is told about them."""

from __future__ import annotations

import re

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.spec import SpecError


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        # filesystems
        ("f2fs(compress='gzip')", r"compress: .*\blzo, lzo-rle, lz4, zstd\b.*\bzstd:22\b.*'gzip'"),
        ("f2fs(compress='zstd:best')", "compress: .*'zstd:best'"),
        ("btrfs(compress='lzo:9')", r"compress: .*\blzo\b.*\bzlib:9, zstd:15\b.*'lzo:9'"),
        ("btrfs(compress='zlib:10')", "compress: .*'zlib:10'"),
        ("f2fs(compress='zstd:0')", "compress: .*'zstd:0'"),
        ("btrfs(compress='zstd', mount='noatime,nodatacow')", r"compress: .*\bnodatacow\b"),
        ("btrfs(compress='zstd', mount='nodatasum')", r"compress: .*\bnodatasum\b"),
        ("btrfs(compress='zstd', mount='compress-force=no')", r"compress: .*\bcompress-force\b"),
        ("zfs(vdev='mirror')", r"vdev: .*\b2\b.*pool\(2\)"),
        ("pool(3) | zfs(vdev='raidz2', log=True)", r"vdev: .*\b4\b.*pool\(4\)"),
        ("zfs(log=True)", r"log: .*\b2\b.*pool\(2\)"),
        ("pool(2) | bcachefs(replicas=3)", r"replicas: .*\b3\b.*pool\(3\)"),
        ("zfs(mkfs='-O keylocation=file:///etc/key')", "mkfs: keylocation "),
        # block layers
        ("linear(offset='100')", r"offset: .*\b512\b.*\b100\b"),
        ("linear(size='0')", r"size: .*\b512\b.*\b0\b"),
        ("linear(size='x')", "size: .*'x'"),
        ("flakey(up=0, down=0)", r"down: .*\bup\b.*\b0\b"),
        ("flakey(drop_writes=True, error_writes=True)", r"error_writes: .*\bdrop_writes\b"),
        ("lvm(stripes=2)", "stripes: .*kind='striped'"),
        ("lvm(chunk_size=65536)", "chunk_size: .*kind='thin'.*kind='snapshot'"),
        ("lvm(kind='thin', on='snapshot')", "on: .*kind='snapshot'"),
        ("lvm(kind='striped', stripes=1)", r"stripes: .*\b2\b.*\b128\b.*\b1\b"),
        ("lvm(kind='thin', chunk_size=69632)", r"chunk_size: .*\b65536\b.*\b69632\b"),
        ("lvm(kind='snapshot', chunk_size=12288)", r"chunk_size: .*\b4096\b.*\b12288\b"),
        ("lvm(kind='striped', stripe_size=12288)", r"stripe_size: .*\b4096\b.*\b12288\b"),
        ("raid(level=6, devices=3)", r"devices: .*\b6\b.*\b4\b.*\b253\b.*\b3\b"),
        ("raid(level=10, devices=5)", r"devices: .*\b10\b.*\b5\b"),
        ("raid(chunk_size=4096)", r"chunk_size: .*\b1\b"),
        ("raid(level=5, chunk_size=5000)", r"chunk_size: .*\b4096\b.*\b5000\b"),
        ("luks(type='luks1', sector_size=4096)", r"sector_size: .*\bluks2\b.*\bluks1\b"),
        ("luks(type='luks1', integrity='hmac-sha256')", r"integrity: .*\bluks2\b.*\bluks1\b"),
        ("luks(journal=False)", "journal: .*`integrity`"),
        ("luks(wipe=False)", "wipe: .*`integrity`"),
        ("dmcrypt(key_size=100)", r"key_size: .*\b100\b"),
        # directories
        ("gocryptfs(reverse=True, xchacha=True)", r"xchacha: .*\breverse\b"),
        ("gocryptfs(aessiv=True, xchacha=True)", r"xchacha: .*\baessiv\b"),
        ("gocryptfs(mount='-o=xchacha')", r"mount: xchacha\b.*-xchacha\b.*\binit\b"),
        ("gocryptfs(mount='-quiet -xchacha')", r"mount: xchacha\b.*-xchacha\b.*\binit\b"),
        ("gocryptfs(mount='-o ro,longnamemax=70')", r"mount: longnamemax\b"),
        ("ext4 | loop(size='0')", r"size: .*\b4096\b.*\b0\b"),
        (
            "fscrypt(contents='Adiantum', filenames='AES-256-CTS')",
            r"filenames: Adiantum\b.*\bAdiantum\b.*\bAES-256-CTS\b",
        ),
        (
            "fscrypt(filenames='AES-128-CTS')",
            r"filenames: AES-256-XTS\b.*\bAES-256-CTS\b.*\bAES-256-HCTR2\b.*\bAES-128-CTS\b",
        ),
        ("overlay(lower='/usr:../lib')", r"lower: .*\.\./lib\b"),
        ("squashfs(compress='xz:9')", r"compress: .*\bnone, lz4, xz, gzip, lzo, zstd\b.*'xz:9'"),
        ("erofs(compress='lz4hc:13')", r"compress: .*\blz4hc:12, lzma:109\b.*'lz4hc:13'"),
        ("erofs(source='here')", "source: .*'here'"),
        ("overlay(lower='overlay')", r"lower: .*\boverlay\b"),
        # several devices
        ("md(level=5, devices=2)", r"devices: .*\b5\b.*\b3\b.*\b2\b"),
        ("md(chunk_size=65536)", r"chunk_size: .*\b1\b"),
        ("md(level=0, chunk_size=65535)", r"chunk_size: .*\b4096\b.*\b65535\b"),
        ("md(level=0, initial='sync')", r"initial: .*\b0\b"),
        ("md(level=0, bitmap=True)", r"bitmap: .*\b0\b"),
        ("pool(2) | zfs(devices=2)", "lowest"),
        ("luks | md", "lowest"),
        ("luks | xfs(external_log=True)", "lowest"),
        ("luks | bcache", "lowest"),
        ("luks | writecache(cache='ram:1G')", "lowest"),
        ("bcache(cache='/dev/sda')", "ram:256M"),
        ("bcache(cache='ram:1K')", "ram:256M"),
        ("bcache(mode='writeback', sequential_cutoff='a')", "sequential_cutoff: .*'a'"),
        ("lvm(kind='cache') | ext4", r"pool\(2\)"),
        ("lvm(kind='raid1') | ext4", r"pool\(2\)"),
        ("lvm(initial='sync')", "kind='raid1'"),
        ("pool(3) | lvm(kind='striped', stripes=4)", r"stripes: .*\b4\b.*\b3\b"),
        ("lvm(mode='writeback')", "kind='cache'"),
        # binary
        ("gocryptfs(binary='./gocryptfs')", r"gocryptfs: binary: .*\bPATH\b.*'\./gocryptfs'"),
        ("gocryptfs(binary='bin/gocryptfs')", r"gocryptfs: binary: .*\bPATH\b.*'bin/gocryptfs'"),
        ("gocryptfs(binary='/x\\n/gocryptfs')", r"gocryptfs: binary: .*\bPATH\b.*'/x\\n/gocryptfs'"),
        ("gocryptfs(binary='/bin/sh')", r"gocryptfs: binary: .*\bgocryptfs\b.*'/bin/sh'"),
        ("gocryptfs(binary='/opt/gocryptfs-2.4/')", r"gocryptfs: binary: .* gocryptfs\b.*'/opt/gocryptfs-2\.4/'"),
        ("ext4(binary='sh', mkfs='-c true')", r"ext4: binary: .*\bmkfs\.ext4\b.*'sh'"),
        ("ext4(binary='/sbin/mkfs.xfs')", r"ext4: binary: .*\bmkfs\.ext4\b.*'/sbin/mkfs\.xfs'"),
        ("ext4(mkfs='-z /opt/e2fsprogs/mkfs.ext4')", "ext4: mkfs: -z "),
        ("gocryptfs(mount='-config /opt/gocryptfs-2.4/gocryptfs')", "gocryptfs: mount: -config "),
    ],
)
def test_a_mistake_is_told_at_its_option(text: str, facts: str) -> None:
    with pytest.raises(SpecError, match=facts) as caught:
        Stack.parse(text, BUILT_IN)
    error = caught.value
    layer, _, option = re.match(r"(\w+)(: (\w+): )?", error.message).groups()  # type: ignore[union-attr]
    assert error.text[error.start : error.end].startswith(f"{option}=" if option else layer)
