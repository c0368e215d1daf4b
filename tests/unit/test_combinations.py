"""The oracle of drawn projects notices what is wrong, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.combinations.oracle import rules
from tests.combinations.projects import Budget, Deed, Group, Project, Step, projects
from tests.combinations.sessions import Ran

PLAIN, DEAR = "test_a.py::test_0[plain]", "test_a.py::test_0[dear]"
BUDGET = Budget("cost 90%")
GROUP = Group((Step(measures=True, budgets=(BUDGET,)),), ("plain", "dear = plain(cost=150)"), is_class=False)
PROJECT = Project(((GROUP,),))


def ran(plain: str = "PASSED", dear: str = "PASSED", code: int = 0, **changes: str) -> Ran:
    """Return a session with a budget on one of two stacks, in which all reports have these outcomes."""
    in_junit = {"PASSED": "", "SKIPPED": "<skipped/>", "FAILED": "<failure/>", "ERROR": "<error/>"}
    in_json = {"PASSED": "passed", "SKIPPED": "skipped", "FAILED": "failed", "ERROR": "failed"}
    outcomes = {PLAIN: plain, DEAR: dear}
    cases = "".join(
        f'<testcase classname="test_a" name="{name.partition("::")[2]}">{in_junit[word]}</testcase>'
        for name, word in outcomes.items()
    )
    tests = {
        name: {"id": name, "outcome": in_json[word], "text": "reason", "chain": "C", "device": "D", "step": "0"}
        for name, word in outcomes.items()
    }
    for name in tests:
        tests[name]["stack"] = name.partition("[")[2].rstrip("]")
    judgement = {"outcome": "pass", "verdict": {"outcome": "pass"}, "budget": {}}
    chain = {"id": "C", "devices": ["D"], "judgements": {"0": {"dear": [judgement]}}}
    ktap = "".join(f"  {'ok' if word == 'PASSED' else 'not ok'} 1 x\n" for word in outcomes.values())
    files = {
        "junit": f"<testsuites>{cases}</testsuites>",
        "json": json.dumps({"chains": [chain], "tests": tests}),
        "csv": "",
        "ktap": ktap,
        **changes,
    }
    lines = [f"{name} {word} [ 50%]" for name, word in outcomes.items()]
    return Ran(code, "\n".join(lines), "", files, (), ())


STANDIN = ran()


def broken(session: Ran, project: Project = PROJECT, standin: Ran = STANDIN, again: Ran | None = None) -> list[str]:
    return [problem.rule for problem in rules(project, standin, session, again)]


def test_a_session_without_mistakes_breaks_no_rule() -> None:
    assert broken(ran()) == []


@pytest.mark.parametrize(
    ("session", "rule"),
    [
        (replace(ran(), stderr="INTERNALERROR> x"), "no internal error"),
        (replace(ran(), stdout=f"{ran().stdout}\n../pytest_fsstack/rounds/loop.py:3: in act"), "no frame"),
        (replace(ran(), left=("/run/x",)), "nothing is left"),
        (replace(ran(), code=4), "no project is refused"),
        (replace(ran(), code=1), "the exit code"),
        (replace(ran(), stdout=ran().stdout.splitlines()[0]), "each selected test"),
        (ran("PASSED", "PASSED", junit="<a/>"), "the outcome in JUnit"),
        (ran("PASSED", "PASSED", json=ran("FAILED").files["json"]), "the outcome in JSON"),
        (ran("PASSED", "SKIPPED", ktap="  ok 1 x\n  ok 2 x # SKIP y\n"), "a test that only its budgets judge"),
        (ran(json=ran().files["json"].replace("[{", '[], "x": [{')), "without a verdict"),
        (replace(ran(), scopes=("test_a.py", "test_b.py", "test_a.py", "test_b.py")), "a module's fixtures end"),
        (ran(csv="chain,step,stack,metric,round\nC,0,dear,seconds,1"), "the CSV"),
        (ran(ktap="  ok 1 x\n  not ok 2 x\n"), "KTAP"),
    ],
)
def test_a_mistake_breaks_a_rule(session: Ran, rule: str) -> None:
    assert any(name.startswith(rule) or rule in name for name in broken(session))


def test_a_budget_that_was_not_judged_never_passes_under_strict() -> None:
    group = replace(GROUP, steps=(replace(GROUP.steps[0], marks=("skipif(True, reason='R')",)),))
    project = Project(((group,),), strict="ini")
    skipped = ran("SKIPPED", "SKIPPED", json=ran("SKIPPED", "SKIPPED").files["json"].replace("[{", '[], "x": [{'))
    skipped = replace(skipped, files={**skipped.files, "ktap": "  ok 1 x # SKIP R\n  ok 2 x # SKIP R\n"})
    assert broken(skipped, project, skipped) == [
        "strict: exit 0 only if each budget was judged",
        "strict: exit 0 only if a budget was judged",
    ]
    failed = replace(skipped, code=1, stdout=f"{skipped.stdout}\nfsstack: 0 of 1 budgets")
    assert broken(failed, project, skipped) == []


@pytest.mark.parametrize(
    ("strict", "allowed", "code", "rules"),
    [
        ("ini", (), 0, ["strict: exit 0 only if each budget was judged"]),
        ("ini", (), 1, []),
        ("ini", ("other", "*test_0[[]dear]"), 0, []),
        ("ini", ("reason",), 0, []),
        ("ini", ("reason",), 1, ["the exit code fits the outcomes"]),
        ("", (), 1, ["the exit code fits the outcomes"]),
    ],
)
def test_a_strict_session_is_red_only_for_budgets_that_are_not_allowed(
    strict: str, allowed: tuple[str, ...], code: int, rules: list[str]
) -> None:
    """The limit is judged on `plain`, and the test on `dear` is skipped."""
    limited = replace(GROUP, steps=(replace(GROUP.steps[0], budgets=(Budget("cost 200"),)),))
    both = json.loads(ran("PASSED", "SKIPPED").files["json"])
    judgements = both["chains"][0]["judgements"]["0"]
    judgements["plain"] = judgements.pop("dear")
    ktap = "  ok 1 x\n  ok 2 x # SKIP R\n"
    session = ran("PASSED", "SKIPPED", code, json=json.dumps(both), ktap=ktap)
    project = Project(((limited,),), strict=strict, allowed=allowed)
    assert broken(session, project, ran("PASSED", "SKIPPED")) == rules


def test_what_a_failing_session_begins_with_is_not_good() -> None:
    project = Project(((replace(GROUP, steps=(Step((), (Deed("call", "fails"),), (), True),)),),))
    session = ran("FAILED", "FAILED", code=1, markdown="**All 8 limits are kept.**\n")
    assert broken(session, project, ran("FAILED", "FAILED")) == [
        "the first line is no better than the worst test: markdown"
    ]


@given(projects())
@settings(max_examples=50)
def test_each_file_of_a_project_is_python(project: Project) -> None:
    for name, text in project.files().items():
        if name.endswith(".py"):
            compile(text, name, "exec")
