"""The commands of layers on several devices, recorded instead of run."""

from __future__ import annotations

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.stack.model import BuildContext, OptionError, Pool, Stack
from pytest_fsstack.stack.spec import SpecError
from tests.unit.layers.conftest import LayerMachine, only

WIPED = ["wipefs -aq /dev/a", "wipefs -aq /dev/b"]


def first(pool: Pool, count: int) -> Pool:
    return Pool.of(pool.devices[:count])


# -- what a stack needs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "members", "id"),
    [
        ("ext4(external_log=True)", 2, "ext4-external_log"),
        ("ext4", 1, "ext4"),
    ],
)
def test_a_layer_says_how_many_devices_it_takes(text: str, members: int, id: str) -> None:
    stack = Stack.parse(text, BUILT_IN)
    assert (stack.members, stack.id) == (members, id)
    assert Stack.parse(str(stack), BUILT_IN) == stack


@pytest.mark.parametrize(
    ("text", "facts", "under"),
    [
        ("luks | xfs(external_log=True)", "lowest", "xfs(external_log=True)"),
    ],
)
def test_it_is_refused_where_it_is_wrong(text: str, facts: str, under: str) -> None:
    with pytest.raises(SpecError, match=facts) as caught:
        Stack.parse(text, BUILT_IN)
    assert text[caught.value.start : caught.value.end] == under


# -- a device that is lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("btrfs(data='raid1')", None),
        ("btrfs(data='raid0', metadata='raid1')", "data"),
        ("btrfs(data='raid1', metadata='dup')", "metadata"),
        ("btrfs", "data"),
        ("ext4", ""),
    ],
)
def test_what_has_no_second_copy_stands_no_loss(text: str, option: str | None) -> None:
    layer = only(f"pool(2) | {text}" if "btrfs" in text else text)
    if option is None:
        layer.check_loss()
        return
    with pytest.raises(OptionError) as caught:
        layer.check_loss()
    assert caught.value.option == option


# -- logs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "commands", "mount"),
    [
        (
            "ext4(external_log=True, mkfs='-I 512 -b 1024')",
            [
                "wipefs -aq /dev/b",
                "mkfs.ext4 -q -F -b 1024 -O journal_dev /dev/b",
                "wipefs -aq /dev/a",
                "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard -I 512 -b 1024 -J device=/dev/b "
                "/dev/a",
            ],
            "journal_path=/dev/b",
        ),
        (
            "xfs(external_log=True)",
            [*WIPED, "mkfs.xfs -q -f -K -l logdev=/dev/b /dev/a"],
            "logdev=/dev/b",
        ),
    ],
)
def test_a_log_has_the_second_device(
    text: str, commands: list[str], mount: str, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    layer, pair = only(text), first(pool, 2)
    layer.create(pair, context)
    assert machine.taken() == commands
    with layer.opened(pair, context):
        assert any(line.startswith("mount ") and mount in line for line in machine.taken())
    layer.fsck(pair, context)
    assert machine.taken()[-1].endswith("/dev/b /dev/a")
