"""The commands of the layers between two block devices, recorded instead of run: no root, no device."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fsstack.layers import BUILT_IN, mapper, raid
from pytest_fsstack.layers.dmcrypt import Dmcrypt
from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import DeviceMapper, KernelCipher
from pytest_fsstack.stack.model import Block, Site, Stack
from pytest_fsstack.stack.spec import SpecError
from tests.toolkit import NotedJournal

#: Of the device below; 384 MiB.
SECTORS = 786432


class Any(dict[str, Path]):
    """Whatever mapping is asked for."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Path:
        return Path("/dev", name)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    recorded: list[str] = []

    def run(*argv: object, **keywords: object) -> str:
        words = " ".join(map(str, argv)).replace(str(os.getpid()), "PID")
        recorded.append(re.sub(r"/fd/\d+", "/fd/N", words))
        return "0 1 raid raid6_zr 4 AAAA 100/100 idle 0 0 -" if argv[:2] == ("dmsetup", "status") else ""

    @contextmanager
    def held(ours: Callable[[str], bool], make: Callable[[], object]) -> Iterator[Any]:
        make()
        yield Any()

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(mapper, "held", held)
    monkeypatch.setattr(mapper, "block", lambda name, device, written=None: Block(device, lambda: None))
    for module in mapper, raid:
        monkeypatch.setattr(module, "sectors", lambda place: SECTORS if place.path.name == "fake" else 1000)
    return recorded


@pytest.fixture
def site(site: Site) -> Site:
    site.depth = 1
    return site


FAKE = Block(Path("/dev/fake"), lambda: None)


def created(text: str, site: Site, ran: list[str]) -> list[str]:
    (layer,) = Stack.parse(text, BUILT_IN).layers
    layer.create(FAKE, site)
    found = [*ran]
    ran.clear()
    return found


def opened(text: str, site: Site, ran: list[str]) -> list[str]:
    (layer,) = Stack.parse(text, BUILT_IN).layers
    with layer.opened(FAKE, site, 1) as place:
        assert isinstance(place, Block)
        return [*ran, f"gives {place.path}".replace(str(os.getpid()), "PID")]


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("linear", "0 786432 linear /dev/fake 0"),
        ("linear(offset='1M')", "0 784384 linear /dev/fake 2048"),
        ("linear(offset='512', size='64M')", "0 131072 linear /dev/fake 1"),
        ("delay", "0 786432 delay /dev/fake 0 10 /dev/fake 0 10"),
        ("delay(read=0, write=5, flush=7)", "0 786432 delay /dev/fake 0 0 /dev/fake 0 5 /dev/fake 0 7"),
        ("flakey", "0 786432 flakey /dev/fake 0 60 5 0"),
        ("flakey(up=1, down=2, drop_writes=True)", "0 786432 flakey /dev/fake 0 1 2 1 drop_writes"),
        (
            "flakey(error_writes=True, features='corrupt_bio_byte 32 r 1 0')",
            "0 786432 flakey /dev/fake 0 60 5 6 error_writes corrupt_bio_byte 32 r 1 0",
        ),
    ],
)
def test_a_target_gets_its_options_in_its_table(
    text: str, table: str, ran: list[str], site: Site, journal: NotedJournal
) -> None:
    name = f"fsstack-PID-1-{text.partition('(')[0]}"
    assert created(text, site, ran) == ["wipefs -aq /dev/fake"]
    assert opened(text, site, ran) == [f"dmsetup create {name} --table {table}", f"gives /dev/{name}"]
    assert journal.entries == [("dm", name.replace("PID", str(os.getpid())))]


def test_a_part_that_does_not_fit_is_told(ran: list[str], site: Site) -> None:
    with pytest.raises(OSError, match=r"linear.offset='1G'. does not fit on /dev/fake, which has 402653184 bytes"):
        opened("linear(offset='1G')", site, ran)
    assert ran == []


def test_integrity_is_formatted_and_opened_with_the_same_checksum(ran: list[str], site: Site) -> None:
    text = "integrity(tag_size=2, sector_size=4096, mode='bitmap', wipe=False, format='--journal-size 1', open='-v')"
    assert created(text, site, ran) == [
        "wipefs -aq /dev/fake",
        "integritysetup --batch-mode format --progress-frequency 0 --integrity crc32c --tag-size 2 --sector-size 4096 "
        "--no-wipe --journal-size 1 /dev/fake",
    ]
    assert opened(text, site, ran)[0] == (
        "integritysetup --batch-mode open --integrity crc32c --integrity-bitmap-mode -v /dev/fake "
        "fsstack-PID-1-integrity"
    )


def test_a_keyed_checksum_gets_its_key_by_a_descriptor(ran: list[str], site: Site) -> None:
    text = "integrity(integrity='hmac-sha256')"
    key = "--integrity hmac-sha256 --integrity-key-file /proc/self/fd/N --integrity-key-size 32"
    assert created(text, site, ran)[1] == (f"integritysetup --batch-mode format --progress-frequency 0 {key} /dev/fake")
    assert f" open {key} /dev/fake " in opened(text, site, ran)[0]


def test_luks_knows_its_versions_and_the_mapping_of_its_tags(ran: list[str], site: Site, journal: NotedJournal) -> None:
    assert created("luks(type='luks1')", site, ran)[1] == (
        "cryptsetup --batch-mode luksFormat --type luks1 --pbkdf-force-iterations 1000 --cipher aes-xts-plain64 "
        "--key-size 512 --key-file /proc/self/fd/N /dev/fake"
    )
    text = "luks(integrity='hmac-sha256', journal=False, wipe=False, no_read_workqueue=True)"
    assert " --integrity hmac-sha256 --integrity-no-wipe " in created(text, site, ran)[1]
    assert opened(text, site, ran)[0] == (
        "cryptsetup --batch-mode open --type luks --integrity-no-journal --perf-no_read_workqueue --key-file "
        "/proc/self/fd/N /dev/fake fsstack-PID-1-luks"
    )
    assert journal.entries == [("dm", f"fsstack-{os.getpid()}-1-{name}") for name in ("luks_dif", "luks")]


def test_dmcrypt_gets_its_performance_flags(ran: list[str], site: Site) -> None:
    text = "dmcrypt(no_write_workqueue=True, same_cpu_crypt=True, submit_from_crypt_cpus=True, open='--allow-discards')"
    flags = "--perf-no_write_workqueue --perf-same_cpu_crypt --perf-submit_from_crypt_cpus --allow-discards"
    assert opened(text, site, ran)[0] == (
        f"cryptsetup --batch-mode open --type plain --cipher aes-xts-plain64 --key-size 512 {flags} --key-file "
        "/proc/self/fd/N --keyfile-size 64 /dev/fake fsstack-PID-1-dmcrypt"
    )


@pytest.mark.parametrize(
    ("text", "lvcreate"),
    [
        ("lvm", ["-Wn -Zn --name lv --extents 100%FREE GROUP"]),
        (
            "lvm(extents='50%VG', lvcreate='--readahead none')",
            ["-Wn -Zn --name lv --extents 50%VG --readahead none GROUP"],
        ),
        (
            "lvm(kind='thin', chunk_size=131072)",
            [
                "--type thin --thinpool pool --extents 100%FREE --chunksize 131072b -Wn --virtualsize 629145s "
                "--name lv GROUP"
            ],
        ),
        (
            "lvm(kind='thin', virtual_size='1G')",
            ["--type thin --thinpool pool --extents 100%FREE -Wn --virtualsize 2097152s --name lv GROUP"],
        ),
        (
            "lvm(kind='snapshot', chunk_size=8192)",
            [
                "-Wn -Zn --name lv --extents 45%VG GROUP",
                "--snapshot --name snap --extents 100%FREE --chunksize 8192b GROUP/lv",
            ],
        ),
    ],
)
def test_a_logical_volume_is_made_as_its_kind_says(
    text: str, lvcreate: list[str], ran: list[str], site: Site, journal: NotedJournal
) -> None:
    group = "fsstack-PID-1-lvm"
    assert created(text, site, ran) == [
        "wipefs -aq /dev/fake",
        "lvm pvcreate -qffy /dev/fake",
        f"lvm vgcreate -q --setautoactivation n {group} /dev/fake",
        *(f"lvm lvcreate -qy -an {words.replace('GROUP', group)}" for words in lvcreate),
    ]
    assert opened(text, site, ran) == [
        f"lvm lvchange -qy --activate y {group}/lv",
        "gives /dev/fsstack--PID--1--lvm-lv",
    ]
    assert journal.entries == [("vg", group.replace("PID", str(os.getpid())))] * 2
    assert list(site.directory.iterdir()) == []


def test_stripes_are_on_slices_of_the_device(ran: list[str], site: Site) -> None:
    text = "lvm(kind='striped', stripes=3, stripe_size=16384, pvcreate='--metadatasize 1M')"
    wipe, slices, *made = created(text, site, ran)
    assert wipe == "wipefs -aq /dev/fake"
    name = "fsstack-PID-1-pv"
    tables = [f"{name}-{number},,,rw,0 262144 linear /dev/fake {number * 262144}" for number in range(3)]
    assert slices == f"dmsetup create --concise {';'.join(tables)}"
    volumes = [f"/dev/{name}-{number}" for number in range(3)]
    assert made == [
        *(f"{tool} {volume}" for volume in volumes for tool in ("wipefs -aq", "lvm pvcreate -qffy --metadatasize 1M")),
        f"lvm vgcreate -q --setautoactivation n fsstack-PID-1-lvm {' '.join(volumes)}",
        "lvm lvcreate -qy -an --stripes 3 --stripesize 16384b -Wn -Zn --name lv --extents 100%FREE fsstack-PID-1-lvm",
    ]


def test_the_stack_may_stand_on_the_snapshot(ran: list[str], site: Site) -> None:
    assert opened("lvm(kind='snapshot', on='snapshot')", site, ran)[-1] == "gives /dev/fsstack--PID--1--lvm-snap"


def test_lvm_knows_nothing_but_its_own_volumes(ran: list[str], site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[dict[str, str], str]] = []

    def run(*argv: object, env: dict[str, str], **_: object) -> str:
        seen.append((env, Path(env["LVM_SYSTEM_DIR"], "lvm.conf").read_text()))
        return ""

    monkeypatch.setattr(commands, "run", run)
    opened("lvm", site, ran)
    ((env, configuration),) = seen
    assert env["LVM_SUPPRESS_FD_WARNINGS"] == "1"
    assert Path(env["LVM_SYSTEM_DIR"]).parent == site.directory
    assert 'global_filter = [ "a|^/dev/fake$|", "r|.*|" ]' in configuration
    assert f'locking_dir = "{env["LVM_SYSTEM_DIR"]}"' in configuration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raid(level=0)", "0 2000 raid raid0 1 128 2 - P-0 - P-1"),
        ("raid", "0 1000 raid raid1 2 0 nosync 2 P-2 P-0 P-3 P-1"),
        ("raid(level=5, chunk_size=4096)", "0 2000 raid raid5_ls 2 8 nosync 3 P-3 P-0 P-4 P-1 P-5 P-2"),
        (
            "raid(level=10)",
            "0 2000 raid raid10 6 128 nosync raid10_format near raid10_copies 2 4 P-4 P-0 P-5 P-1 P-6 P-2 P-7 P-3",
        ),
        (
            "raid(level=6)",
            "0 2000 raid raid6_zr 5 128 min_recovery_rate 10000000 max_recovery_rate 10000000 4 "
            "P-4 P-0 P-5 P-1 P-6 P-2 P-7 P-3",
        ),
    ],
)
def test_a_raid_is_on_slices_of_the_device(text: str, expected: str, ran: list[str], site: Site) -> None:
    name = "fsstack-PID-1-raid"
    slices, array, _ = opened(text, site, ran)
    assert array.replace(f"/dev/{name}", "P") == f"dmsetup create {name} --table {expected}"
    extents = [
        (int(start), int(start) + int(length))
        for length, start in re.findall(r"rw,0 (\d+) linear /dev/fake (\d+)", slices)
    ]
    assert len(extents) == len(re.findall(r"P-\d", expected))
    ordered = sorted(extents)
    assert ordered[0][0] == 0
    assert ordered[-1][1] <= SECTORS
    for number, (start, _) in enumerate(ordered[1:]):
        assert ordered[number][1] <= start, "they overlap"


def test_copies_count_as_equal_only_where_the_superblocks_were_emptied(
    ran: list[str], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[str] = []

    def opened(path: str, flags: int) -> int:
        emptied.append(Path(path).name)
        return 7

    monkeypatch.setattr(os, "open", opened)
    for name in "write", "fsync", "close":
        monkeypatch.setattr(os, name, lambda *_: 0)
    said = created("raid(level=6)", site, ran)
    assert [name.rpartition("-")[2] for name in emptied] == ["4", "5", "6", "7"]
    assert said[0] == "wipefs -aq /dev/fake"
    assert said[-1] == "dmsetup status fsstack-PID-1-raid"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear(offset='100')", "offset: must be a multiple of 512 bytes (got 100)"),
        ("linear(size='0')", "size: must be a multiple of 512 bytes (got 0)"),
        ("linear(size='x')", "'x' is not a size"),
        ("delay(read=-1)", "read: must be a number of milliseconds (got -1)"),
        ("flakey(up=0, down=0)", "up and down cannot both be 0"),
        ("flakey(drop_writes=True, error_writes=True)", "error_writes: does not go with drop_writes"),
        ("integrity(mode='fast')", "mode: must be one of journal, bitmap, none"),
        ("integrity(sector_size=8192)", "sector_size: must be 512, 1024, 2048 or 4096 (got 8192)"),
        ("lvm(stripes=2)", "stripes: goes with kind='striped'"),
        ("lvm(chunk_size=65536)", "chunk_size: goes with kind='thin' or kind='snapshot'"),
        ("lvm(kind='thin', on='snapshot')", "on: goes with kind='snapshot'"),
        ("lvm(kind='striped', stripes=1)", "stripes: must be a number from 2 to 128 (got 1)"),
        ("lvm(kind='thin', chunk_size=5000)", "chunk_size: must be a number of bytes such as 65536 (got 5000)"),
        ("raid(level=4)", "level: must be 0, 1, 5, 6 or 10 (got 4)"),
        ("raid(level=6, devices=3)", "level 6 takes 4 to 253 devices (got 3)"),
        ("raid(level=10, devices=5)", "level 10 takes devices in pairs (got 5)"),
        ("raid(chunk_size=4096)", "level 1 has no chunks"),
        ("raid(level=5, chunk_size=5000)", "chunk_size: must be a power of 2 from 4096 on (got 5000)"),
        ("luks(type='luks1', sector_size=4096)", "sector_size: needs luks2: luks1 has none"),
        ("luks(type='luks1', integrity='hmac-sha256')", "integrity: needs luks2: luks1 has none"),
        ("luks(journal=False)", "journal: is an option of what `integrity` adds; give that as well"),
        ("luks(wipe=False)", "wipe: is an option of what `integrity` adds; give that as well"),
        ("dmcrypt(key_size=100)", "key_size: must be a number of bits such as 256 or 512 (got 100)"),
    ],
)
def test_options_that_make_no_sense_are_told(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        Stack.parse(text, BUILT_IN)


# -- ciphers -----------------------------------------------------------------------------------------------------------


def ciphers(text: str) -> list[KernelCipher]:
    return [need for need in Dmcrypt(cipher=text).needs() if isinstance(need, KernelCipher)]


@pytest.mark.parametrize(
    ("text", "cipher"),
    [
        ("aes-xts-plain64", KernelCipher("xts(aes)", "CRYPTO_AES")),
        ("aes-cbc-essiv:sha256", KernelCipher("cbc(aes)", "CRYPTO_AES")),
        ("serpent-xts-plain64", KernelCipher("xts(serpent)", "CRYPTO_SERPENT")),
        ("xchacha12,aes-adiantum-plain64", KernelCipher("adiantum(xchacha12,aes)", "CRYPTO_ADIANTUM")),
        ("capi:xts(twofish)-plain64", KernelCipher("xts(twofish)", "CRYPTO_TWOFISH")),
        # Those that authenticate as well, and those that cryptsetup completes: the failure tells.
        ("aes-gcm-random", None),
        ("chacha20-random", None),
        ("capi:authenc(hmac(sha256),xts(aes))-plain64", None),
        ("aes", None),
    ],
)
def test_a_cipher_is_asked_of_the_kernel(text: str, cipher: KernelCipher | None) -> None:
    assert ciphers(text) == ([cipher] if cipher else [])


@given(st.text(alphabet="aesxtcb,-:()12 ", max_size=30))
def test_no_text_of_a_cipher_is_too_odd(text: str) -> None:
    assert len(ciphers(text)) <= 1


def test_tags_need_another_target_of_the_kernel() -> None:
    (plain,) = Stack.parse("luks", BUILT_IN).layers
    (tagged,) = Stack.parse("luks(integrity='hmac-sha256')", BUILT_IN).layers
    assert [need for need in tagged.needs() if need not in plain.needs()] == [DeviceMapper("integrity")]
