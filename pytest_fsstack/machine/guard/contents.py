"""Detection of data on a block device."""

from __future__ import annotations

from pytest_fsstack.machine.blockdev import node, partitions
from pytest_fsstack.machine.guard.disk import Disk, Refused, refusing_errors, shown_size
from pytest_fsstack.machine.guard.label import digest_of, label_on
from pytest_fsstack.machine.guard.reading import in_words, opened_uncached, pread, probe, samples


def refuse_contents(disk: Disk) -> None:
    """Raise `Refused` unless the device is blank, or unchanged since `write_label_on`.

    A blank device has no partitions, no signature that blkid knows, and zeros at all examined places. Data without a
    signature, such as plain dm-crypt, can only be recognised because it is not zero.
    """
    with refusing_errors(disk.user_path):
        if contents := _contents(disk):
            flag = f"--fsstack-overwrite={disk.user_path}"
            raise Refused(disk.user_path, f"{contents}; `{flag}` on the command line gives it over to testing")


def _contents(disk: Disk) -> str | None:
    if parts := partitions(disk.sysfs):
        return f"it has the partitions {', '.join(map(node, parts))}"
    with opened_uncached(disk) as fd:
        if signature := in_words(probe(disk.path)):
            return f"it holds {signature}"
        label = label_on(fd, disk.size)
        if label and label.size != disk.size:
            other, size = shown_size(label.size), shown_size(disk.size)
            return f"it carries the scratch label of another device, of {other}, not {size}"
        if label:
            if label.digest == digest_of(fd, disk.size, label.id):
                return None
            return "it carries the scratch label, but something was written to it since"
        for offset, length in samples(disk.size):
            data = pread(fd, length, offset)
            if data != bytes(length):
                first = offset + length - len(data.lstrip(b"\0"))
                return f"it holds data without a known signature, at byte {first} of {disk.size}"
    return None
