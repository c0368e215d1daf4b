"""The commands of the layers between two block devices, recorded instead of run: no root, no device."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.dmcrypt import Dmcrypt
from pytest_fsstack.machine.needs import DeviceMapper, KernelCipher
from pytest_fsstack.machine.port import Word
from pytest_fsstack.preflight.recording import RecordingJournal
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import SESSION, Block, BuildContext
from tests.unit.layers.conftest import SECTORS, LayerMachine, only


class Maker:
    """Makes and opens layers on the device, and gives the commands."""

    def __init__(self, machine: LayerMachine, device: Block, context: BuildContext) -> None:
        self.machine, self.device, self.context = machine, device, context

    def created(self, text: str) -> list[str]:
        only(text).create(self.device, self.context)
        return self.machine.taken()

    def opened(self, text: str) -> list[str]:
        self.machine.lines.clear()
        with only(text).opened(self.device, self.context) as place:
            assert isinstance(place, Block)
            name = self.machine.mapping_name(place.path)
            return [*self.machine.taken(), f"gives {name}".replace(self.context.name(""), "fsstack-ID-1-")]


def test_another_session_has_other_names_even_with_the_same_process_number(context: BuildContext) -> None:
    code = "from pytest_fsstack.stack.places import SESSION; print(SESSION)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    # The shortest limit is md's, of 32 bytes.
    assert len(f"md_{context.name('md').replace(SESSION, other)}") < 32
    assert other not in context.name("md")


@pytest.fixture
def maker(machine: LayerMachine, device: Block, context: BuildContext) -> Maker:
    return Maker(machine, device, context)


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
    text: str, table: str, maker: Maker, context: BuildContext, journal: RecordingJournal
) -> None:
    name = f"fsstack-ID-1-{text.partition('(')[0]}"
    assert maker.created(text) == ["wipefs -aq /dev/fake"]
    assert maker.opened(text) == [f"dmsetup create {name} --table '{table}'", f"gives {name}"]
    assert journal.entered == [("dm", {"name": context.name(text.partition("(")[0])})]


def test_a_part_that_does_not_fit_is_told(maker: Maker) -> None:
    with pytest.raises(OSError, match=r"linear\(offset='1G'\) .*/dev/fake\b.*\b402653184\b"):
        maker.opened("linear(offset='1G')")
    assert maker.machine.taken() == []


def test_integrity_is_formatted_and_opened_with_the_same_checksum(maker: Maker) -> None:
    text = "integrity(tag_size=2, sector_size=4096, mode='bitmap', wipe=False, format='--journal-size 1', open='-v')"
    assert maker.created(text) == [
        "wipefs -aq /dev/fake",
        "integritysetup --batch-mode format --progress-frequency 0 --integrity crc32c --tag-size 2 --sector-size 4096 "
        "--no-wipe --journal-size 1 /dev/fake",
    ]
    assert maker.opened(text)[0] == (
        "integritysetup --batch-mode open --integrity crc32c --integrity-bitmap-mode -v /dev/fake "
        "fsstack-ID-1-integrity"
    )


def test_a_keyed_checksum_gets_its_key_by_a_descriptor(maker: Maker) -> None:
    text = "integrity(integrity='hmac-sha256')"
    key = "--integrity hmac-sha256 --integrity-key-file /proc/self/fd/SECRET --integrity-key-size 32"
    assert maker.created(text)[1] == (f"integritysetup --batch-mode format --progress-frequency 0 {key} /dev/fake")
    assert f" open {key} /dev/fake " in maker.opened(text)[0]


def test_luks_gets_its_passphrase_by_a_descriptor(maker: Maker) -> None:
    text = "luks(cipher='serpent-xts-plain64', key_size=256, sector_size=4096, format='--label x')"
    assert maker.created(text)[1] == (
        "cryptsetup --batch-mode luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --cipher "
        "serpent-xts-plain64 --key-size 256 --sector-size 4096 --label x --key-file /proc/self/fd/SECRET /dev/fake"
    )
    assert maker.machine.secrets == [64]


def test_luks_knows_its_versions_and_the_mapping_of_its_tags(
    maker: Maker, context: BuildContext, journal: RecordingJournal
) -> None:
    assert maker.created("luks(type='luks1')")[1] == (
        "cryptsetup --batch-mode luksFormat --type luks1 --pbkdf-force-iterations 1000 --cipher aes-xts-plain64 "
        "--key-size 512 --key-file /proc/self/fd/SECRET /dev/fake"
    )
    text = "luks(integrity='hmac-sha256', journal=False, wipe=False, no_read_workqueue=True)"
    assert " --integrity hmac-sha256 --integrity-no-wipe " in maker.created(text)[1]
    assert maker.opened(text)[0] == (
        "cryptsetup --batch-mode open --type luks --integrity-no-journal --perf-no_read_workqueue --key-file "
        "/proc/self/fd/SECRET /dev/fake fsstack-ID-1-luks"
    )
    assert journal.entered == [("dm", {"name": context.name(name)}) for name in ("luks_dif", "luks")]


def test_dmcrypt_gets_its_performance_flags(maker: Maker) -> None:
    text = "dmcrypt(no_write_workqueue=True, same_cpu_crypt=True, submit_from_crypt_cpus=True, open='--allow-discards')"
    flags = "--perf-no_write_workqueue --perf-same_cpu_crypt --perf-submit_from_crypt_cpus --allow-discards"
    assert maker.opened(text)[0] == (
        f"cryptsetup --batch-mode open --type plain --cipher aes-xts-plain64 --key-size 512 {flags} --key-file "
        "/proc/self/fd/SECRET --keyfile-size 64 /dev/fake fsstack-ID-1-dmcrypt"
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
    text: str, lvcreate: list[str], maker: Maker, context: BuildContext, journal: RecordingJournal
) -> None:
    group = "fsstack-ID-1-lvm"
    assert maker.created(text) == [
        "wipefs -aq /dev/fake",
        "lvm pvcreate -qffy /dev/fake",
        f"lvm vgcreate -q --setautoactivation n {group} /dev/fake",
        *(f"lvm lvcreate -qy -an {words.replace('GROUP', group)}" for words in lvcreate),
    ]
    assert maker.opened(text) == [
        f"lvm lvchange -qy --activate y {group}/lv",
        f"gives {doubled(context.name('lvm'))}-lv",
    ]
    assert journal.entered == [("vg", {"name": context.name("lvm")})] * 2
    assert list(context.directory.iterdir()) == []


def test_stripes_are_on_slices_of_the_device(maker: Maker) -> None:
    text = "lvm(kind='striped', stripes=3, stripe_size=16384, pvcreate='--metadatasize 1M')"
    wipe, slices, *made = maker.created(text)
    assert wipe == "wipefs -aq /dev/fake"
    name = "fsstack-ID-1-pv"
    tables = [f"{name}-{number},,,rw,0 262144 linear /dev/fake {number * 262144}" for number in range(3)]
    assert slices == f"dmsetup create --concise '{';'.join(tables)}'"
    volumes = ["DM", "DM2", "DM3"]
    assert made == [
        *(f"{tool} {volume}" for volume in volumes for tool in ("wipefs -aq", "lvm pvcreate -qffy --metadatasize 1M")),
        f"lvm vgcreate -q --setautoactivation n fsstack-ID-1-lvm {' '.join(volumes)}",
        "lvm lvcreate -qy -an --stripes 3 --stripesize 16384b -Wn -Zn --name lv --extents 100%FREE fsstack-ID-1-lvm",
    ]


def test_the_stack_may_stand_on_the_snapshot(maker: Maker, context: BuildContext) -> None:
    text = "lvm(kind='snapshot', on='snapshot')"
    maker.created(text)
    assert maker.opened(text)[-1] == f"gives {doubled(context.name('lvm'))}-snap"


def doubled(group: str) -> str:
    """Return the name of a volume group as the device-mapper shows it."""
    return group.replace("-", "--")


def test_lvm_knows_nothing_but_its_own_volumes(tmp_path: Path) -> None:
    class Reading(LayerMachine):
        """Reads the configuration that a command gets."""

        def run(self, *argv: Word, env: Mapping[str, str] | None = None, **keywords: Any) -> str:
            if argv[0] == "lvm":
                self.environment = dict(env or {})
                self.configuration = Path(self.environment["LVM_SYSTEM_DIR"], "lvm.conf").read_text()
            return super().run(*argv, env=env, **keywords)

    machine = Reading(tmp_path)
    only("lvm").create(
        Block(Path("/dev/fake"), lambda: None, machine), BuildContext(tmp_path, RecordingJournal(machine))
    )
    directory = machine.environment["LVM_SYSTEM_DIR"]
    assert machine.environment["LVM_SUPPRESS_FD_WARNINGS"] == "1"
    assert Path(directory).parent == tmp_path
    assert 'global_filter = [ "a|^/dev/fake$|", "r|.*|" ]' in machine.configuration
    assert f'locking_dir = "{directory}"' in machine.configuration
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raid(level=0)", "0 786432 raid raid0 1 128 2 - DM - DM2"),
        ("raid", "0 391168 raid raid1 2 0 nosync 2 DM3 DM DM4 DM2"),
        ("raid(level=5, chunk_size=4096)", "0 520192 raid raid5_ls 2 8 nosync 3 DM4 DM DM5 DM2 DM6 DM3"),
        (
            "raid(level=10)",
            "0 389120 raid raid10 6 128 nosync raid10_format near raid10_copies 2 4 DM5 DM DM6 DM2 DM7 DM3 DM8 DM4",
        ),
        (
            "raid(level=6)",
            "0 389120 raid raid6_zr 5 128 min_recovery_rate 10000000 max_recovery_rate 10000000 4 "
            "DM5 DM DM6 DM2 DM7 DM3 DM8 DM4",
        ),
    ],
)
def test_a_raid_is_on_slices_of_the_device(text: str, expected: str, maker: Maker) -> None:
    slices, array, _ = maker.opened(text)
    assert array == f"dmsetup create fsstack-ID-1-raid --table '{expected}'"
    extents = [
        (int(start), int(start) + int(length))
        for length, start in re.findall(r"rw,0 (\d+) linear /dev/fake (\d+)", slices)
    ]
    assert len(extents) == expected.count("DM")
    ordered = sorted(extents)
    assert ordered[0][0] == 0
    assert ordered[-1][1] <= SECTORS
    for number, (start, _) in enumerate(ordered[1:]):
        assert ordered[number][1] <= start, "they overlap"


def test_copies_count_as_equal_only_where_the_superblocks_were_emptied(maker: Maker) -> None:
    only("raid(level=6)").create(maker.device, maker.context)
    assert maker.machine.written == [Path(name) for name in ("DM5", "DM6", "DM7", "DM8")]
    commands = maker.machine.taken()
    assert commands[0] == "wipefs -aq /dev/fake"
    assert commands[-1] == "dmsetup status fsstack-ID-1-raid"


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
