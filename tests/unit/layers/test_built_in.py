"""The layers of the plugin itself, which are imported one family at a time."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

from pytest_fsstack import layers
from pytest_fsstack.layers import BUILT_IN, known
from pytest_fsstack.layers.filesystems import Ext4
from pytest_fsstack.stack.layer import Layer


def _modules() -> list[ModuleType]:
    return [
        importlib.import_module(module.name) for module in pkgutil.walk_packages(layers.__path__, f"{layers.__name__}.")
    ]


def test_every_layer_is_named_and_found_under_its_name() -> None:
    written = {
        value.name: value
        for module in _modules()
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Layer)
        and "name" in vars(value)
        and value.__module__ == module.__name__
    }
    assert dict(BUILT_IN) == written


def test_a_stack_imports_the_families_of_its_layers_and_no_other() -> None:
    code = (
        "import sys; from pytest_fsstack.layers import known; from pytest_fsstack.stack.model import Stack\n"
        "Stack.parse('ext4', known([]))\n"
        "print(*[name for name in sys.modules if name.startswith('pytest_fsstack.layers.')])"
    )
    modules = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert "pytest_fsstack.layers.filesystems" in modules
    assert not {"dmcrypt", "lvm", "zfs", "kernel_encryption"} & {name.rpartition(".")[2] for name in modules}


def test_layers_of_others_stand_beside_them_and_can_come_later() -> None:
    class Mine(Ext4):
        name = "mine"

    class Late(Ext4):
        name = "late"

    kinds = known([[Mine]])
    kinds.update({"late": Late})
    assert (kinds["mine"], kinds["late"], kinds["ext4"]) == (Mine, Late, Ext4)
    assert list(kinds)[: len(BUILT_IN)] == list(BUILT_IN)
    assert "late" not in known([])
    with pytest.raises(KeyError):
        kinds["nothing"]
