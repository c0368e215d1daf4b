"""Records of the environment of figures: the machine or guest that measured them.

What cannot be read is left out, and more may be in it. So it stays a dictionary, and these types check what is known.
"""

from __future__ import annotations

from typing import Any, TypedDict


class Kernel(TypedDict, total=False):
    """A kernel as it tells of itself. What is private is left out of its command line."""

    release: str
    version: str
    command_line: str
    taint: int


class Cpu(TypedDict, total=False):
    """The processors that the session may use. `mitigations` are by the name of the vulnerability."""

    model: str
    count: int
    governor: str
    aes_instructions: bool
    virtual: bool
    mitigations: dict[str, str]


class Driver(TypedDict, total=False):
    """The driver that the kernel takes for an algorithm."""

    driver: str
    priority: int


class Device(TypedDict, total=False):
    """A device that stacks were built on. `size` and `read_ahead` are in bytes, `spec` is as on the command line."""

    spec: str
    size: int
    model: str
    #: A hash of the serial number, with this plugin's own key.
    serial_hash: str
    scheduler: str
    rotational: bool
    read_ahead: int
    filesystem: str
    mount_options: Any
    direct_io: bool


class Corpus(TypedDict):
    """The files that workloads extract and read."""

    name: str
    files: int
    bytes: int


class Environment(TypedDict, total=False):
    """The environment of figures. Unreadable facts are left out."""

    #: When it was recorded, ISO 8601 in UTC.
    date: str
    #: A hash of /etc/machine-id, with this plugin's own key.
    machine_id: str
    kernel: Kernel
    cpu: Cpu
    #: In bytes.
    memory: int
    #: Load averages before the first stack.
    load: list[float | None]
    #: By algorithm.
    crypto: dict[str, Driver]
    devices: list[Device]
    #: Of Python, its packages, and the tools of layers and workloads.
    versions: dict[str, str]
    #: What the session has set: discard, scheduler, read_ahead, governor, settle.
    settings: dict[str, Any]
    corpus: Corpus
    #: If kernels are compared: by name, what each of them told of itself.
    kernels: dict[str, Environment]
