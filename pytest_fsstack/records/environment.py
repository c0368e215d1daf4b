"""Records of the environment: the machine or guest that measured the figures.

Unreadable facts are missing, and unknown ones are kept. So it stays a dictionary, and these types check the known keys.
"""

from __future__ import annotations

from typing import Any, TypedDict


class Kernel(TypedDict, total=False):
    """Facts about the running kernel. Private parts of its command line are left out."""

    release: str
    version: str
    command_line: str
    taint: int


class Cpu(TypedDict, total=False):
    """The processors available to the session. `mitigations` are by the name of the vulnerability."""

    model: str
    count: int
    governor: str
    aes_instructions: bool
    virtual: bool
    mitigations: dict[str, str]


class Driver(TypedDict, total=False):
    """The kernel driver in use for a crypto algorithm."""

    driver: str
    priority: int


class Device(TypedDict, total=False):
    """A device that held stacks. `size` and `read_ahead` are in bytes, `spec` is the text on the command line."""

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
    """The environment of figures. Unreadable facts are missing."""

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
    #: Settings that the session changed: discard, scheduler, read_ahead, governor, settle.
    settings: dict[str, Any]
    corpus: Corpus
    #: The environment of each compared kernel, by name.
    kernels: dict[str, Environment]
