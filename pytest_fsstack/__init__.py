"""Storage configurations as pytest parameters: build them, measure on them, compare them, judge them.

Everything that a test, a scenario, a layer, a report or a table of somebody else needs can be imported from here, and
the ready-made steps from `pytest_fsstack.workloads`. All other modules may change. A name is loaded when it is first
used, because the plugin is part of every pytest run of the machine. `__init__.pyi` has the names.

PYTEST_DONT_REWRITE: the command `fsstack` imports it before pytest, which would warn that it can no more.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    import ast
    import importlib
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: str(node.module) for node in imports for alias in node.names}
    if name == "__all__":
        return sorted(modules)
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not kept: pytester forgets modules, and the source of a class of a forgotten one is not found.
    return getattr(importlib.import_module(modules[name]), name)
