"""Merging of results of several sessions, such as those of several machines. Each chain keeps its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pytest_fsstack.records.results import ChainResults, Results


def side_by_side(runs: Mapping[str, Results]) -> Results:
    """Merge the results of several runs into one. Devices are renamed to ``loop of NAME``.

    In pictures, a test has a facet for each run. Nothing is compared across runs: each stack keeps its baseline and its
    verdicts.
    """
    found = Results({name: {**_session(run), **run.environment} for name, run in runs.items()})
    for name, run in runs.items():
        found.chains += [_of(chain, name, run) for chain in run.chains]
        for test in run.tests.values():
            renamed = replace(test, id=f"{name}: {test.id}", device=_device(test.device, name))
            found.tests[renamed.id] = renamed
        found.failures += [f"{name}: {failure}" for failure in run.failures]
        found.table_layouts = {**found.table_layouts, **run.table_layouts}
    found.interrupted = "; ".join(f"{name}: {run.interrupted}" for name, run in runs.items() if run.interrupted)
    return found


def _of(chain: ChainResults, name: str, run: Results) -> ChainResults:
    devices = [
        {**device, "spec": _device(device.get("spec", ""), name)} for device in run.environment.get("devices", [])
    ]
    return replace(
        chain,
        devices=[_device(spec, name) for spec in chain.devices],
        environment={**run.environment, "devices": devices},
    )


def _device(spec: str, name: str) -> str:
    return f"{spec} of {name}"


def _session(run: Results) -> dict[str, Any]:
    facts = {"began": run.start, "ended": run.stop, "scale": run.scale, "label": run.labels}
    return {name: value for name, value in facts.items() if value}
