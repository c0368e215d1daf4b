"""Imports of the package point one way, by rooms and without circles; and the checker sees what it must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import layout

PACKAGE = Path(__file__).parents[2] / "pytest_fsstack"
IMPORTS = layout.read(PACKAGE)

#: Imports that still point back. An entry that does so no longer must go.
KNOWN: frozenset[str] = frozenset()

#: Rooms whose modules know pytest at run time.
PYTEST = {"options", "rounds", "session", "over_time", "kernels", "preflight", "ci", "hooks", "plugin", "command"}
#: They write to pytest's terminal.
TERMINAL = {"pytest_fsstack.report.terminal", "pytest_fsstack.rounds.progress"}
#: Asks where pytest has its cache.
CACHE = {"pytest_fsstack.machine.needs"}
#: It marks tests as expected to fail.
VERDICT = {"pytest_fsstack.correctness.verdict"}


def test_imports_point_one_way() -> None:
    found = layout.violations(IMPORTS)
    assert sorted(found - KNOWN) == [], "see FLOORS in tests/layout.py for who may import whom"
    assert sorted(KNOWN - found) == [], "no longer violated: take it out of KNOWN"


def test_no_modules_and_no_rooms_import_each_other_in_a_circle() -> None:
    assert layout.circles(IMPORTS.own) == []
    assert layout.circles(IMPORTS.rooms()) == []


def test_every_module_is_in_a_room_of_the_house() -> None:
    rooms = {IMPORTS.room(module) for module in IMPORTS.own}
    assert rooms - {room for floor in layout.FLOORS for room in floor} == set()
    assert len(IMPORTS.own) > 60


def test_only_what_faces_pytest_knows_it() -> None:
    knows = {module for module, names in IMPORTS.foreign.items() if names & {"pytest", "_pytest"}}
    assert {module for module in knows if IMPORTS.room(module) not in PYTEST} - TERMINAL - CACHE - VERDICT == set()


def test_commands_are_run_by_one_module() -> None:
    assert {module for module, names in IMPORTS.foreign.items() if "sh" in names} == {"pytest_fsstack.machine.commands"}


def package(root: Path, **files: str) -> layout.Imports:
    """A package named `house` of these files; a double underscore in a name stands for a slash."""
    house = root / "house"
    for name, text in {"__init__": "", **files}.items():
        path = house / ("__init__.py" if name == "__init__" else name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return layout.read(house)


FLOORS = (("low",), ("mid", "next"), ("high",), ("",))
BACK = {"house.low.a -> house.high.b"}


@pytest.mark.parametrize(
    "source",
    [
        "import house.high.b",
        "import house.high.b as b",
        "from house.high import b",
        "from house.high.b import thing",
        "from ..high import b",
        "from ..high.b import thing",
        "def f():\n    if True:\n        from house.high.b import thing",
        "class C:\n    def f(self):\n        import os, house.high.b",
        "import importlib\nimportlib.import_module('house.high.b')",
        "from importlib import import_module\nx = lambda: import_module('house.high.b')",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import os\nelse:\n    import house.high.b",
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import house.high.b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.high.b",
        "import typing\nif typing.TYPE_CHECKING:\n    from house.high import b",
        "try:\n    import house.high.b\nexcept ImportError:\n    pass",
    ],
)
def test_an_import_that_points_back_is_seen_in_any_form(tmp_path: Path, source: str) -> None:
    imports = package(tmp_path, low__a=source, high__b="thing = 1")
    assert layout.violations(imports, FLOORS) == BACK


@pytest.mark.parametrize(
    "source",
    [
        '"""import house.high.b"""',
        "import os.path, houses.high.b",
        "from house.low import c",
    ],
)
def test_what_stays_in_the_room_and_what_is_no_import_is_none(tmp_path: Path, source: str) -> None:
    assert layout.violations(package(tmp_path, low__a=source, low__c="", high__b=""), FLOORS) == set()


def test_a_higher_floor_imports_a_lower_one_and_neighbours_import_each_other(tmp_path: Path) -> None:
    imports = package(tmp_path, high__b="import house.low.a, house.mid", mid="import house.next", next="", low__a="")
    assert layout.violations(imports, FLOORS) == set()


def test_a_room_that_is_in_no_floor_is_a_violation(tmp_path: Path) -> None:
    imports = package(tmp_path, low__a="", attic="import house.low.a")
    assert layout.violations(imports, FLOORS) == {"house.attic -> house.low.a"}


def test_some_rooms_know_less_than_what_is_below_them(tmp_path: Path) -> None:
    imports = package(tmp_path, machine="", units="", judging__a="import house.machine, house.units")
    assert layout.violations(imports) == {"house.judging.a -> house.machine"}


def test_a_circle_is_found_among_modules_of_one_room_and_among_rooms(tmp_path: Path) -> None:
    imports = package(
        tmp_path,
        low__a="def f():\n    from house.low import b",
        low__b="from house.low import c",
        low__c="import house.low.a",
        mid__a="import house.next.a",
        next__a="",
        next__b="import house.mid.b",
        mid__b="",
    )
    assert layout.circles(imports.own) == [{"house.low.a", "house.low.b", "house.low.c"}]
    assert layout.circles(imports.rooms()) == [{"mid", "next"}]
