"""The announcement of a session: how many tests run, and about how long that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fsstack.preflight.runs import runs_of
from pytest_fsstack.records.results import Results
from pytest_fsstack.rounds.plans import plan_of
from pytest_fsstack.rounds.progress_text import in_words
from pytest_fsstack.units import counted
from pytest_fsstack.workloads.data.scale import USUAL_SECONDS

if TYPE_CHECKING:
    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.session.state import Session


def announcement(session: Session) -> str:
    """Return how many tests run on how many stacks, and about how long. Tests that cannot run do not count."""
    skipped, fewest, most, stacks = 0, 0, 0, set[str]()
    known, shortest, longest, sized = True, 0.0, 0.0, True
    earlier = runs_before(session.settings)
    for chain in dict.fromkeys(session.chains.values()):
        planned = plan_of(chain, session.budgets)
        lacking = {name for name, stack in planned.stacks.items() if stack.lacks}
        if chain.baseline in lacking:
            lacking = {*planned.stacks}
        selected = [(stack, item) for _, stack, item in chain.members() if item in chain.selected]
        running = {stack for stack, item in selected if stack not in lacking and not item.get_closest_marker("skip")}
        skipped += sum(stack not in running for stack, _ in selected)
        if not running:
            continue
        stacks |= running
        runs = runs_of(session, chain, planned).only(running | {chain.baseline, chain.control})
        fewest, most = fewest + runs.ends[0], most + runs.ends[1]
        sized = sized and all(item.get_closest_marker("fsstack_sizes") for _, item in selected)
        seconds = runs.seconds(session, chain, earlier)
        if isinstance(seconds, list):
            known = False
        else:
            shortest, longest = shortest + seconds[0], longest + seconds[1]
    text = counted(len(session.chains), "test")
    text += f", of which {skipped} cannot run here (-rs shows why)" if skipped else ""
    if not fewest:
        return text
    text += f"; {'' if fewest == most else f'{fewest} to '}{counted(most, 'run')} of {counted(len(stacks), 'stack')}"
    if known:
        return f"{text}; {_range(shortest, longest)}, as in earlier runs"
    if not sized:
        return f"{text}; the time that is left is shown after the first run"
    usual = USUAL_SECONDS[session.settings.scale]
    guess = _range(fewest * usual[0], most * usual[1])
    return f"{text}; {guess}, a rough guess: after the first run, a better one is shown"


def _range(shortest: float, longest: float) -> str:
    return "about " + " to ".join(dict.fromkeys(map(in_words, (shortest, longest))))


def runs_before(settings: Settings) -> list[Results]:
    """Return the runs that the command line names, the latest last. Raises `pytest.UsageError`."""
    if not (settings.history or settings.compare):
        return []
    from pytest_fsstack.machine import identity
    from pytest_fsstack.over_time import history
    from pytest_fsstack.over_time.plugin import earlier_runs

    runs: list[Results] = []
    if settings.history:
        path = history.file_of(settings.history, identity.machine_id())
        with settings.blaming("history"):
            try:
                runs += history.read(path).runs if path.exists() else []
            except OSError as error:
                raise ValueError(f"{path}: {error.strerror}") from None
    with settings.blaming("compare"):
        for source in settings.compare:
            runs += earlier_runs(source).values()
    return sorted(runs, key=lambda run: run.start)
