"""Rules for every project, in plain code, on what its sessions printed and wrote.

`rules` yields the rules that a project broke, each with the evidence. pytest itself says how tests end that no budget
judges: it ran the project with the stand-in for the plugin.
"""

from __future__ import annotations

import csv
import fnmatch
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.combinations.projects import Budget, Group, Project, Step
from tests.combinations.sessions import Ran

COSTS = {"dear": 150, "other": 100}
#: How JUnit and the JSON of the plugin call the outcomes of the terminal.
IN_JUNIT = {"failed": "failure", "error": "error", "skipped": "skipped", "xfailed": "skipped"}
IN_JSON = {"error": "failed"}
ENOUGH_ROUNDS = 5


class Broken(NamedTuple):
    """A rule that did not hold."""

    rule: str
    evidence: str


@dataclass(frozen=True)
class Test:
    """A test of a project, by its id in pytest."""

    id: str
    group: Group
    step: Step
    name: str
    stack: str = ""
    baseline: str = ""

    @classmethod
    def of(cls, project: Project, name: str) -> Test:
        module, *inner = name.partition("[")[0].split("::")
        words = name.partition("[")[2].rstrip("]").split("-")
        group = next(group for file, title, group in project.groups if (file, title) == (module, inner[0]))
        step = group.steps["xyz".index(inner[1][-1])] if group.is_class else group.steps[0]
        names = [text.partition(" = ")[0] for text in (project.replaced_stacks or group.stacks) if group.stacks]
        return cls(
            name, group, step, inner[-1], next((stack for stack in names if stack in words), ""), next(iter(names), "")
        )

    @property
    def index(self) -> int:
        return self.group.steps.index(self.step)

    def budgets(self, project: Project) -> list[Budget]:
        """Return the budgets that judge the test: the last of each kind and metric."""
        rules = [*self.group.budgets, *self.step.budgets]
        rules += [budget for place in ("ini", "command line") for where, budget in project.budgets if where == place]
        last = {
            (budget.absolute, budget.text.split()[0]): budget
            for budget in rules
            if budget.applies(self.stack, self.baseline)
        }
        return list(last.values()) if self.stack and self.step.measures else []


def rules(project: Project, standin: Ran, ran: Ran, again: Ran | None) -> Iterator[Broken]:
    """Yield what does not hold."""
    yield from _no_error_of_the_plugin(standin, ran)
    yield from _nothing_is_left(ran)
    if ran.code == 4:
        if not _may_be_refused(project):
            yield Broken("no project is refused without a mistake", ran.stderr)
        return
    tests = {name: Test.of(project, name) for name in standin.terminal}
    for session in standin, ran:
        _leave_out_subtests(session, tests)
    yield from _unused_plugin_is_unseen(project, standin, ran)
    yield from _one_outcome_in_each_report(project, standin, ran, tests)
    yield from _plain_tests_are_untouched(standin, ran, tests)
    yield from _exit_code_fits(project, ran, tests)
    yield from _modules_end_before_others(project, ran)
    if project.uses_stacks:
        yield from _outcomes_are_right(project, standin, ran, tests)
        yield from _strict_means_judged(project, ran, tests)
        yield from _reports_agree(ran)
        yield from _steps_keep_their_order(ran, tests)
        yield from _headline_is_no_better_than_the_worst(ran)
        yield from _failures_have_a_reason(ran)
    if again is not None:
        yield from _the_second_session_continues(project, ran, again)


def _no_error_of_the_plugin(standin: Ran, ran: Ran) -> Iterator[Broken]:
    text, traceback = ran.stdout + ran.stderr, "Traceback (most recent call last)"
    # pytest itself shows some, of several errors in one teardown.
    if "INTERNALERROR" in text or (traceback in text and traceback not in standin.stdout) or ran.code == 3:
        yield Broken("no internal error and no traceback", text)
    if frames := re.findall(r"^\S*pytest_fsstack/\S+\.py:\d+.*", ran.stdout, re.M):
        yield Broken("no frame of the plugin in a failure", "\n".join(frames))


def _nothing_is_left(ran: Ran) -> Iterator[Broken]:
    if ran.left:
        yield Broken("nothing is left on the machine", "\n".join(ran.left))


def _may_be_refused(project: Project) -> bool:
    """Whether a project has a mistake: a gate in workers, or a budget for which the selection leaves no stack."""
    gated = bool(project.strict or project.missing_fails) and project.uses_stacks
    selects = bool(project.options or project.replaced_stacks)
    typed = [budget for place, budget in project.budgets if place == "command line"]
    return (project.workers and gated) or (bool(typed) and selects)


def _leave_out_subtests(session: Ran, tests: dict[str, Test]) -> None:
    """Leave out outcomes of subtests, which pytest may show as those of an expected failure of their test."""
    for name, outcomes in session.terminal.items():
        if name in tests and tests[name].step.subtests:
            own = [one for one in outcomes if one != "error"]
            # A test that failed may be an expected failure once more, in its teardown.
            failed = {"failed"} & {*own} - {*own[-1:]}
            error = {"error"} & {*outcomes[-1:]}
            session.terminal[name] = [*failed, *own[-1:], *error]


def _unused_plugin_is_unseen(project: Project, standin: Ran, ran: Ran) -> Iterator[Broken]:
    if not project.uses_stacks and not any("fsstack" in word for word in project.words()):
        # pytest itself lists all fixtures where one is missing.
        others = [line for line in (ran.stdout + ran.stderr).splitlines() if "available fixtures:" not in line]
        if lines := [line for line in others if "fsstack" in line]:
            yield Broken("no line of the plugin without stacks", "\n".join(lines))
        if ran.code != standin.code and not project.ends:
            yield Broken("the same exit code without stacks", f"{ran.code}, not {standin.code}")


def _one_outcome_in_each_report(project: Project, standin: Ran, ran: Ran, tests: dict[str, Test]) -> Iterator[Broken]:
    selected, reported = list(standin.terminal), list(ran.terminal)
    fails = [name for name, outcomes in ran.terminal.items() if {"failed", "error"} & {*outcomes}]
    if project.ends and project.workers:
        # Workers end a session in no particular order.
        if not {*reported} <= {*selected} or (not fails and len(reported) < len(selected)):
            yield Broken("workers report selected tests until one fails", f"{reported}\nof {selected}\n{ran.stdout}")
    elif project.ends:
        stopped = len(reported) < len(selected)
        if reported != selected[: len(reported)]:
            yield Broken(
                "a session that ends early reports the first tests", f"{reported}\nof {selected}\n{ran.stdout}"
            )
        if stopped and not fails:
            yield Broken("a session ends early only after a failure", ran.stdout)
        if project.ends in ("-x", "--sw") and fails and fails[0] != reported[-1]:
            yield Broken("a session ends with the first failure", f"{fails[0]} failed, {reported[-1]} is the last")
    elif sorted(reported) != sorted(selected):
        yield Broken("each selected test is in the terminal", f"{set(selected) ^ set(reported)}\n{ran.stdout}")
    for name, outcomes in ran.terminal.items():
        # pytest itself may give two, as for an expected failure whose teardown fails.
        if len(outcomes) > 1 and outcomes[1:] != ["error"] and outcomes != standin.terminal.get(name):
            yield Broken("one outcome in the terminal", f"{name}: {outcomes}")
        # Subtests may be further cases of their test, and a test that passed before its teardown failed is none.
        wanted = {IN_JUNIT.get(outcome, "passed") for outcome in outcomes}
        reasons = {*ran.junit.get(name, ["is missing"])}
        subtests = name in tests and tests[name].step.subtests
        if reasons - {"passed"} != wanted - {"passed"} and not subtests:
            yield Broken("the outcome in JUnit is that of the terminal", f"{name}: {reasons}, not {wanted}")
    if extra := ran.junit.keys() - ran.terminal.keys():
        yield Broken("no other test in JUnit", f"{extra}")
    if ran.results is not None:
        stacked = {name: outcomes for name, outcomes in ran.terminal.items() if tests[name].stack}
        wanted_in_json = {name: _worst(outcomes) for name, outcomes in stacked.items()}
        in_json = {name: test["outcome"] for name, test in ran.tests.items()}
        if in_json != wanted_in_json:
            different = wanted_in_json.items() ^ in_json.items()
            yield Broken("the outcome in JSON is that of the terminal", f"{sorted(different)}")
    elif any(tests[name].stack for name in ran.terminal if name in tests):
        yield Broken("a session with stacks writes its results", ran.stdout)


def _worst(outcomes: list[str]) -> str:
    in_json = [IN_JSON.get(outcome, outcome) for outcome in outcomes]
    return "failed" if "failed" in in_json else next((one for one in in_json if one != "passed"), "passed")


def _plain_tests_are_untouched(standin: Ran, ran: Ran, tests: dict[str, Test]) -> Iterator[Broken]:
    for name, outcomes in ran.terminal.items():
        if name in tests and not tests[name].stack:
            now, before = (outcomes, ran.junit[name]), (standin.terminal[name], standin.junit[name])
            if now != before:
                yield Broken("a plain test ends as without the plugin", f"{name}: {now}, not {before}")


def _exit_code_fits(project: Project, ran: Ran, tests: dict[str, Test]) -> Iterator[Broken]:
    fails = any({"failed", "error"} & {*outcomes} for outcomes in ran.terminal.values())
    # --sw interrupts a session. pytest-xdist does so too if it has enough failures before its workers have ended.
    ended = {2} if project.ends == "--sw" else {1, 2} if project.ends and project.workers else {1}
    wanted = ended if fails else {0} if ran.terminal else {5}
    if ran.terminal and not fails and _gate_may_fail(project, ran, tests):
        wanted = {0, 1}
    if ran.code not in wanted:
        yield Broken("the exit code fits the outcomes", f"{ran.code}, not {wanted}\n{ran.stdout}")


def _gate_may_fail(project: Project, ran: Ran, tests: dict[str, Test]) -> bool:
    """Whether a session may fail without a test that fails: a gate that judged nothing, or not all of its budgets."""
    if not (project.strict or project.missing_fails):
        return False
    judged = any(judgement.get("verdict") for name in ran.tests for judgement in _judgements(ran, name))
    return not judged or bool(project.strict and [*_unjudged(project, ran, tests), *_without_stack(project, tests)])


def _modules_end_before_others(project: Project, ran: Ran) -> Iterator[Broken]:
    """Yield if a fixture of a module lives while another module's tests run."""
    if not project.workers and (len(ran.scopes) % 2 or ran.scopes[::2] != ran.scopes[1::2]):
        yield Broken("a module's fixtures end before another module begins", "\n".join([*ran.scopes, ran.stdout]))


def _outcomes_are_right(project: Project, standin: Ran, ran: Ran, tests: dict[str, Test]) -> Iterator[Broken]:
    for name, outcomes in ran.terminal.items():
        if not (test := tests[name]).stack:
            continue
        plain, one = standin.terminal[name], outcomes[0]
        # The round of a deed may not come, as a stack ends with its first failure.
        uncertain = any(deed.round for deed in test.step.deeds)
        if one == "passed" and plain[0] not in ("passed", "skipped") and not uncertain:
            yield Broken("no test passes that fails by itself", f"{name}: {outcomes}, alone {plain}")
        if plain == ["passed"] and _is_clean(project, test, standin, tests):
            wanted = _verdict(project, test)
            if one not in wanted:
                yield Broken("a test that only its budgets judge", f"{name}: {one}, not {wanted}\n{ran.stdout}")
        judgements = _judgements(ran, name)
        if outcomes == ["passed"] and any(judgement["outcome"] != "pass" for judgement in judgements):
            yield Broken("no test passes with a budget that is not kept", f"{name}: {judgements}")
        if outcomes == ["passed"] and len(judgements) != len(test.budgets(project)):
            yield Broken("no test passes without a verdict on each budget", f"{name}: {judgements}\n{ran.stdout}")


def _is_clean(project: Project, test: Test, standin: Ran, tests: dict[str, Test]) -> bool:
    """Whether nothing but budgets can change an outcome: all of its group pass on the stack and on the baseline."""
    # Steps that are not selected run too, and workers measure nothing.
    if project.workers or (project.options and len(test.group.steps) > 1):
        return False
    parts = {text.partition(" = ")[0]: text.rpartition("= ")[2] for text in test.group.stacks}
    if any(parts.get(stack) in ("absent", "broken", "ext4") for stack in (test.stack, test.baseline)):
        return False
    return all(
        standin.terminal[other.id] == ["passed"]
        for other in tests.values()
        if other.group is test.group and other.stack in (test.stack, test.baseline)
    )


def _verdict(project: Project, test: Test) -> set[str]:
    """Return how a test may end that passes by itself. The time of a step never exceeds its limits."""
    budgets = test.budgets(project)
    if any(deed.what == "measures nothing" for deed in test.step.deeds):
        return {"passed", "failed", "skipped"}
    if any(budget.xfail for budget in budgets):
        return {"xfailed", "xpassed", "failed", "skipped"}
    undecided = {"failed" if project.strict else "skipped"} if budgets else {"passed"}
    if project.ends:
        # Two stacks that fail may end the session before this test's rounds, and are reported after it.
        undecided.add("skipped")
    if project.rounds < ENOUGH_ROUNDS:
        return undecided
    maybe = undecided if project.ends or project.strict else set()
    cost, base = COSTS.get(test.stack, 100), COSTS.get(test.baseline, 100)
    for budget in budgets:
        metric, word = budget.text.split()
        limit = float(word.rstrip("%"))
        if metric == "cost" and (cost > limit if budget.absolute else cost / base - 1 > limit / 100):
            return {"failed", *maybe}
    return {"passed", *maybe}


def _judgements(ran: Ran, name: str) -> list[dict[str, Any]]:
    """Return the judgements of a test in the JSON."""
    test = ran.tests.get(name, {})
    for chain in ran.results["chains"] if ran.results else ():
        if (chain["id"], chain["devices"]) == (test.get("chain"), [test.get("device")]):
            judgements: list[dict[str, Any]] = chain.get("judgements", {}).get(test["step"], {}).get(test["stack"], [])
            return judgements
    return []


def _strict_means_judged(project: Project, ran: Ran, tests: dict[str, Test]) -> Iterator[Broken]:
    if not project.strict or ran.code != 0:
        return
    for name, budget in _without_stack(project, tests):
        yield Broken("strict: exit 0 only if each budget has a stack", f"{name}: {budget}\n{ran.stdout}")
    for name in _unjudged(project, ran, tests):
        evidence = f"{name} {ran.terminal[name]}: {_judgements(ran, name)}\n{ran.stdout}"
        yield Broken("strict: exit 0 only if each budget was judged", evidence)
    promised = [name for name in ran.terminal if tests[name].budgets(project)]
    if promised and not any(_judged(ran, name) for name in promised):
        yield Broken("strict: exit 0 only if a budget was judged", f"{promised}\n{ran.stdout}")


def _unjudged(project: Project, ran: Ran, tests: dict[str, Test]) -> Iterator[str]:
    """Yield tests with budgets that were not judged. A pattern may allow it for the test or for the reason."""
    for name in ran.terminal:
        reason = ran.tests.get(name, {}).get("text", "")
        if _judged(ran, name) < len(tests[name].budgets(project)) and not _is_allowed(project, name, reason):
            yield name


def _without_stack(project: Project, tests: dict[str, Test]) -> Iterator[tuple[str, Budget]]:
    """Yield budgets of marks whose stacks an option replaced by others."""
    baseline, *_ = names = [text.partition(" = ")[0] for text in project.replaced_stacks] or [""]
    for name, test in tests.items() if project.replaced_stacks else ():
        for budget in [*test.group.budgets, *test.step.budgets] if test.step.measures else ():
            matches = any(budget.applies(stack, baseline) for stack in names)
            if not matches and not _is_allowed(project, name.partition("[")[0]):
                yield name, budget


def _is_allowed(project: Project, *texts: str) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in project.allowed for text in texts)


def _judged(ran: Ran, name: str) -> int:
    """Count the budgets of a test that were judged. What is undecided fails, also if it is expected to."""
    good = ("pass", "fail", "inconclusive") if ran.terminal[name] == ["xfailed"] else ("pass", "fail")
    return sum(bool(one.get("verdict")) and one["outcome"] in good for one in _judgements(ran, name))


def _reports_agree(ran: Ran) -> Iterator[Broken]:
    if ran.results is None:
        return
    chains = ran.results["chains"]
    rows = {
        (chain["id"], step, stack, metric, str(int(number) + 1))
        for chain in chains
        for step, stacks in chain.get("samples", {}).items()
        for stack, boots in stacks.items()
        for samples in boots.values()
        for number, sample in samples.items()
        for metric in sample["values"]
    }
    columns = ("chain", "step", "stack", "metric", "round")
    lines = csv.DictReader(ran.files.get("csv", "").splitlines())
    in_csv = {tuple(line[column] for column in columns) for line in lines}
    if rows != in_csv:
        yield Broken("the CSV has the samples of the JSON", f"{sorted(rows ^ in_csv)[:9]}")
    expected = {(one["chain"], one["step"], one["stack"]) for one in ran.tests.values() if one["outcome"] == "xfailed"}
    failing = {
        (chain["id"], step, stack)
        for chain in chains
        for step, stacks in chain.get("judgements", {}).items()
        for stack, judgements in stacks.items()
        if any(one["outcome"] == "fail" and one["budget"].get("xfail") is None for one in judgements)
    } - expected
    for report in "markdown", "html":
        text = re.sub(r"(?s)<(style|script).*?</\1>", "", ran.files.get(report, ""))
        if chains and bool(failing) != bool(re.search(r"\bFAIL \(max", re.sub(r"<[^>]+>|\*", "", text))):
            yield Broken(f"{report} shows a broken budget if the JSON has one", f"{failing}\n{text}")
    if chains and (missing := [one for one in ran.answer if one not in ran.stdout.replace("\n", " ")]):
        yield Broken("the answer is the same in the terminal and in JUnit", f"{missing}\n{ran.stdout}")
    statuses = re.findall(r"^ +(ok|not ok) \d+ (?:- )?(.*)", ran.files.get("ktap", ""), re.M)
    # A chain also has the steps that the session did not select or did not reach.
    in_ktap = Counter("skipped" if "# SKIP" in text else word for word, text in statuses)
    words = {"passed": "ok", "failed": "not ok", "skipped": "skipped", "xfailed": "ok", "xpassed": "ok"}
    wanted = Counter(words[test["outcome"]] for test in ran.tests.values())
    more = in_ktap["not ok"] != wanted["not ok"] and not ran.results.get("interrupted")
    if chains and (wanted - in_ktap or more):
        yield Broken("KTAP has the outcomes of the JSON", f"{ran.files.get('ktap')}\n{wanted}")


def _steps_keep_their_order(ran: Ran, tests: dict[str, Test]) -> Iterator[Broken]:
    """On a stack, each step of a class runs after the ones before it, until the stack is built again."""
    last: dict[tuple[str, str], tuple[int, str]] = {}
    for number, stack, name in ran.log:
        test = tests.get(name)
        if test and test.group.is_class and test.group.timed:
            # A chain of its own for each value of a shared parameter.
            place = (re.sub(r"::test_.(\[|$)", r"\1", name), stack)
            if place in last and last[place][0] == number and last[place][1] > test.name:
                yield Broken("steps of a class keep their order", f"{name} ran after {last[place][1]}\n{ran.log}")
            last[place] = number, test.name


def _headline_is_no_better_than_the_worst(ran: Ran) -> Iterator[Broken]:
    fails = [test["id"] for test in ran.tests.values() if test["outcome"] == "failed"]
    if not fails:
        return
    first = {
        "JUnit": next(iter(ran.answer), ""),
        "markdown": next(iter(ran.files.get("markdown", "").splitlines()), ""),
        "summary": next((line for line in ran.files.get("summary", "").splitlines() if line.strip()), ""),
        "terminal": (re.findall(r"^=+ answer =+\n(.*)", ran.stdout, re.M) or [""])[0],
    }
    for report, line in first.items():
        if re.search(r"\b(kept|passed|within)\b", line) and not re.search(r"\b(fail|broke|not|Of)\w*\b", line):
            yield Broken(f"the first line is no better than the worst test: {report}", f"{line}\nbut {fails}")


def _failures_have_a_reason(ran: Ran) -> Iterator[Broken]:
    for test in ran.tests.values():
        if test["outcome"] in ("failed", "skipped") and re.search(r"^$|:$|^\[gw\d+\]", test["text"]):
            yield Broken("the first line of a failure has the reason", f"{test['id']}: {test['text']}")


def _the_second_session_continues(project: Project, ran: Ran, again: Ran) -> Iterator[Broken]:
    yield from _no_error_of_the_plugin(ran, again)
    yield from _nothing_is_left(again)
    fails = [name for name, outcomes in ran.terminal.items() if {"failed", "error"} & {*outcomes}]
    if not fails or again.code == 4:
        return
    reported = list(again.terminal)
    if project.ends == "--sw" and (reported[:1] != fails[:1]):
        yield Broken("--sw continues with the test that failed", f"{reported[:1]}, not {fails[:1]}\n{again.stdout}")
    if project.ends == "--lf" and set(reported) != set(fails):
        yield Broken("--lf runs the tests that failed", f"{reported}, not {fails}\n{again.stdout}")
