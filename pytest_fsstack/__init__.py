"""Storage configurations as pytest parameters: build them, measure on them, compare them, judge them.

The public API: everything that tests, scenarios, layers, reports and tables outside of this package need. Ready-made
steps are in `pytest_fsstack.workloads`. All other modules may change. Names are loaded on first use, because every
pytest run of the machine imports this module. `__init__.pyi` lists them.

PYTEST_DONT_REWRITE: the command `fsstack` imports it before pytest, which would warn that it can no more.
"""


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
    # # Not cached: pytester drops modules, and then `inspect` cannot find the source of a cached class.
    return getattr(importlib.import_module(modules[name]), name)
