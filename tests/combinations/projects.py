"""Draw small projects with hypothesis, and write them as files."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis import strategies as st

BEHAVIOUR = Path(__file__).with_name("behaviour.py")

#: The stacks of a test. A stack `dear` costs half as much again as `plain`, and `same` the same.
STACKS = (
    *[("plain", "dear = plain(cost=150)")] * 6,
    *[("plain", "same = plain(cost=101)", "dear = plain(cost=150)")] * 3,
    ("plain",),
    ("plain", "dear = plain(cost=150)", "gone = absent"),
    ("gone = absent", "dear = plain(cost=150)"),
    ("plain", "dear = broken"),
    # A directory is no block device.
    ("plain", "dear = plain(cost=150)", "ext4"),
)


@dataclass(frozen=True)
class Budget:
    """A budget on the cost in coins or on the time, for the stacks that a pattern matches."""

    text: str
    pattern: str = ""
    xfail: bool = False

    @property
    def mark(self) -> str:
        word, metric = self._limit
        value = repr(float(word)) if self.absolute else repr(word)
        value = f"{{{self.pattern!r}: {value}}}" if self.pattern else value
        xfail = ", xfail={'*': 'BUG-1'}" if self.xfail else ""
        name = "limit" if self.absolute else "overhead"
        return f"fsstack_budget({name}={value}, metric={metric!r}{xfail})"

    @property
    def option(self) -> str:
        """Return the text for --fsstack-budget."""
        word, metric = self._limit
        prefix = f"{self.pattern}: " if self.pattern else ""
        return f"{prefix}{metric} <= {word}" if self.absolute else f"{prefix}{metric} {word}"

    @property
    def absolute(self) -> bool:
        return not self.text.endswith("%")

    @property
    def _limit(self) -> tuple[str, str]:
        metric, _, word = self.text.partition(" ")
        return word, metric

    def applies(self, stack: str, baseline: str) -> bool:
        """Whether it judges a stack. An overhead of the baseline over itself is no budget."""
        return fnmatch.fnmatchcase(stack, self.pattern or "*") and (self.absolute or stack != baseline)


#: Costs are exact, so these are kept or broken without chance. The time is far below its limits.
BUDGETS = tuple(
    Budget(text, pattern)
    for text in ("cost 10%", "cost 90%", "cost 120", "cost 200", "seconds 999999%", "seconds 600")
    for pattern in ("", "dear", "*")
)


@dataclass(frozen=True)
class Deed:
    """Something that a test does at a moment: on all stacks or one, in all rounds or one."""

    moment: str
    what: str
    stack: str = ""
    round: int = 0

    def mark(self, rounds: int) -> str:
        words = [repr(self.moment), repr(self.what)]
        words += [f"stack={self.stack!r}"] if self.stack else []
        words += [f"round={self.round}, rounds={rounds}"] if self.round else []
        return f"does({', '.join(words)})"


@dataclass(frozen=True)
class Step:
    """A test function."""

    marks: tuple[str, ...] = ()
    deeds: tuple[Deed, ...] = ()
    fixtures: tuple[str, ...] = ()
    measures: bool = False
    budgets: tuple[Budget, ...] = ()
    subtests: bool = False


@dataclass(frozen=True)
class Group:
    """A class with steps, or a function. Without stacks its tests are plain."""

    steps: tuple[Step, ...]
    stacks: tuple[str, ...] = ()
    is_class: bool = True
    marks: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = ()

    @property
    def timed(self) -> bool:
        return bool(self.stacks) and any(step.measures or step.budgets or self.budgets for step in self.steps)


@dataclass(frozen=True)
class Project:
    """A project, and the command lines of its sessions."""

    modules: tuple[tuple[Group, ...], ...]
    rounds: int = 5
    #: Where the number of rounds is given: on the command line, or in the ini.
    ini: str = "command line"
    strict: str = ""
    #: Patterns of budgets that strict sessions need not judge, given where `strict` is.
    allowed: tuple[str, ...] = ()
    missing_fails: str = ""
    budgets: tuple[tuple[str, Budget], ...] = ()
    options: tuple[str, ...] = ()
    #: Options that end a session early, or select what failed before.
    ends: str = ""
    order: str = ""
    broken: str = ""
    #: Whether each module has a fixture that all of its tests use.
    autouse: bool = False
    workers: bool = False
    replaced_stacks: tuple[str, ...] = ()

    @property
    def groups(self) -> list[tuple[str, str, Group]]:
        """Return each group with its module and its name."""
        return [
            (f"test_{'abc'[number]}.py", f"Test{index}" if group.is_class else f"test_{index}", group)
            for number, groups in enumerate(self.modules)
            for index, group in enumerate(groups)
        ]

    @property
    def uses_stacks(self) -> bool:
        return any(group.stacks for _, _, group in self.groups)

    # -- as files ------------------------------------------------------------------------------------------------------

    def files(self, below: str = "") -> dict[str, str]:
        """Return the files of the project, with their names. Its stacks stand on the layer `below`."""
        name, ini = self._ini()
        modules: dict[str, str] = {}
        for module, title, group in self.groups:
            modules.setdefault(module, "import pytest\n")
            modules[module] += f"\n\n{self._group(title, group, below)}"
        drawn = f"ORDER = {self.order!r}\nBROKEN = {self.broken!r}\nAUTOUSE = {self.autouse!r}\n"
        return {name: ini, "drawn.py": drawn, **modules}

    def _group(self, title: str, group: Group, below: str) -> str:
        words = [*map(repr, group.stacks), *([f"below={below!r}"] if below else [])]
        marks = [f"fsstack({', '.join(words)})"] if group.stacks else []
        marks += [*group.marks, *(budget.mark for budget in group.budgets)]
        if not group.is_class:
            return self._function(title, group, group.steps[0], marks, "")
        head = "".join(f"@pytest.mark.{mark}\n" for mark in marks)
        steps = [
            self._function(f"test_{'xyz'[number]}", group, step, [], "    ") for number, step in enumerate(group.steps)
        ]
        return f"{head}class {title}:\n" + "\n".join(steps)

    def _function(self, name: str, group: Group, step: Step, marks: list[str], indent: str) -> str:
        rounds = self.rounds if group.timed else 1
        marks = [*marks, *step.marks, *(budget.mark for budget in step.budgets)]
        marks += [deed.mark(rounds) for deed in step.deeds]
        stacked = ["fsstack", *(["timed"] if step.measures else [])] if group.stacks else []
        arguments = [*(["self"] if indent else []), *stacked, "does", *step.fixtures]
        # Only those of the function itself, as marks of a class name arguments of each of its functions.
        arguments += [mark.split("'")[1] for mark in [*step.marks, *group.marks] if mark.startswith("parametrize")]
        arguments += ["subtests"] if step.subtests else []
        body = []
        if step.subtests:
            body += ["with subtests.test('sub'):", "    does('subtest')"]
        body += ["does('call')"]
        if step.measures and group.stacks:
            body += ["if does('measure'):", "    with timed(cold=False):", "        pass"]
            body += ["    timed.record('cost', does.cost, unit='coins')", "does('end')"]
        lines = [*(f"@pytest.mark.{mark}" for mark in marks), f"def {name}({', '.join(dict.fromkeys(arguments))}):"]
        lines += [f"    {line}" for line in body]
        return "".join(f"{indent}{line}\n" for line in lines)

    def _ini(self) -> tuple[str, str]:
        values: dict[str, object] = {}
        if self.ini != "command line":
            values["fsstack_rounds"] = self.rounds
        if self.strict == "ini":
            values["fsstack_strict"] = True
            values |= {"fsstack_allow_unjudged": list(self.allowed)} if self.allowed else {}
        if self.missing_fails == "ini":
            values["fsstack_if_unavailable"] = "fail"
        if budgets := [budget.option for place, budget in self.budgets if place == "ini"]:
            values["fsstack_budget"] = budgets
        markers = ["does: what a test does"]
        if self.ini == "toml":
            lines = [f"{name} = {_toml(value)}" for name, value in {"markers": markers, **values}.items()]
            return "pyproject.toml", "\n".join(["[tool.pytest]", *lines, ""])
        lines = [f"{name} = {_ini(value)}" for name, value in {"markers": markers, **values}.items()]
        return "pytest.ini", "\n".join(["[pytest]", *lines, ""])

    # -- as command lines ----------------------------------------------------------------------------------------------

    @property
    def common_words(self) -> list[str]:
        """Return the options that say which tests run, and how pytest shows them."""
        return ["-v", "-rN", *self.options]

    def words(self, below: str = "") -> list[str]:
        """Return the options of the first session, without those of the common ones."""
        stacks = [text.rpartition(" = ") for text in self.replaced_stacks]
        words = [f"--fsstack-rounds={self.rounds}"] if self.ini == "command line" else []
        words += ["--fsstack-strict"] if self.strict == "command line" else []
        if self.strict == "command line":
            words += [f"--fsstack-allow-unjudged={pattern}" for pattern in self.allowed]
        words += ["--fsstack-if-unavailable=fail"] if self.missing_fails == "command line" else []
        words += [f"--fsstack-budget={budget.option}" for place, budget in self.budgets if place == "command line"]
        layers = f"{below} | " if below else ""
        words += [f"--fsstack-stacks={name or text} = {layers}{text}" for name, _, text in stacks]
        # pytest-randomly knows pytest-xdist only as an installed plugin.
        words += ["-n2"] if self.workers and "pytest_randomly" not in self.options else []
        return [*words, *self.ends.split()]


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'


def _ini(value: object) -> str:
    if isinstance(value, list):
        return "".join(f"\n    {line}" for line in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- drawing -----------------------------------------------------------------------------------------------------------

MARKS = (
    *("skip(reason='R')", "skipif(True, reason='R')", "skipif(False, reason='R')", "usefixtures('of_module')"),
    *("xfail(reason='R')", "xfail(strict=True, reason='R')", "xfail(run=False, reason='R')"),
    *("xfail(raises=ValueError, reason='R')", "xfail(False, reason='R')", "parametrize('number', [1, 2])"),
    *("parametrize('of_function', [1, 2], indirect=True)", "parametrize('of_class', [1, 2], indirect=True)"),
)
FIXTURES = (
    *("of_function", "of_class", "of_module", "of_session", "pair_of_function", "pair_of_class", "pair_of_module"),
)
OPTIONS: tuple[tuple[str, ...], ...] = (
    *(("-k", "test_x or test_0"), ("-k", "not dear"), ("-k", "Test0 or Test1"), ("-k", "plain")),
    *(("--deselect=test_a.py::Test0::test_x",), ("--deselect=test_a.py::test_1",), ("--runxfail",)),
    *(("-p", "no:subtests"), ("-p", "no:logging"), ("-p", "no:skipping"), ("-p", "no:warnings")),
    ("-p", "pytest_randomly", "--randomly-seed=3"),
)


def _few(values: Sequence[str], most: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), unique=True, max_size=most).map(tuple)


@st.composite
def deeds(draw: st.DrawFn, stacked: bool, subtests: bool, measures: bool) -> Deed:
    moments = ["call", "setup", "teardown", *(["subtest"] if subtests else [])]
    moments += ["end", "measure"] if measures else []
    moment = draw(st.sampled_from(moments))
    if moment == "measure":
        what = "measures nothing"
    else:
        what = draw(st.sampled_from(["fails", "raises", *([] if moment == "teardown" else ["skips", "xfails"])]))
    if not stacked:
        return Deed(moment, what)
    return Deed(moment, what, draw(st.sampled_from(["", "dear", "plain"])), draw(st.sampled_from([0, 0, 1, 2])))


@st.composite
def steps(draw: st.DrawFn, stacks: tuple[str, ...], measures: bool = False) -> Step:
    stacked = bool(stacks)
    measures = measures or (stacked and draw(st.booleans()))
    subtests = draw(st.integers(0, 3)) == 3
    return Step(
        marks=draw(_few(MARKS, 1)) if draw(st.booleans()) else (),
        # Most tests pass, as otherwise no session would.
        deeds=tuple(draw(st.lists(deeds(stacked, subtests, measures), max_size=draw(st.sampled_from([0, 0, 1, 2]))))),
        fixtures=draw(_few(FIXTURES, 2)) if draw(st.booleans()) else (),
        measures=measures,
        budgets=draw(budgets(stacks)) if measures else (),
        subtests=subtests,
    )


@st.composite
def budgets(draw: st.DrawFn, stacks: tuple[str, ...]) -> tuple[Budget, ...]:
    """Draw budgets that apply to one of the stacks. Others are refused."""
    names = [text.partition(" = ")[0] for text in stacks]
    usable = [budget for budget in BUDGETS if any(budget.applies(name, names[0]) for name in names)]
    chosen = draw(st.lists(st.sampled_from(usable), unique=True, max_size=2))
    return tuple(replace(budget, xfail=draw(st.integers(0, 4)) == 4) for budget in chosen)


@st.composite
def groups(draw: st.DrawFn, may_use_stacks: bool) -> Group:
    stacks = draw(st.sampled_from(STACKS)) if may_use_stacks and draw(st.integers(0, 3)) > 0 else ()
    is_class = draw(st.booleans())
    inside = draw(st.lists(steps(stacks), min_size=1, max_size=3 if is_class else 1))
    measures = any(step.measures for step in inside)
    return Group(
        tuple(inside),
        stacks,
        is_class,
        draw(_few(MARKS, 1)) if is_class and draw(st.integers(0, 3)) == 3 else (),
        draw(budgets(stacks)) if is_class and measures else (),
    )


@st.composite
def projects(draw: st.DrawFn) -> Project:
    focus = draw(st.sampled_from([None, None, None, _interleaved, _with_failing_subtest, _with_unjudged_budget]))
    may_use_stacks = draw(st.integers(0, 4)) > 0
    modules = draw(st.lists(st.lists(groups(may_use_stacks), min_size=1, max_size=2), min_size=1, max_size=2))
    where = st.sampled_from(["", "", "command line", "ini"])
    project = Project(
        modules=tuple(map(tuple, modules)),
        rounds=draw(st.sampled_from([5, 5, 5, 1, 2, 6])),
        ini=draw(st.sampled_from(["command line", "command line", "ini", "ini", "toml"])),
        strict=draw(where),
        missing_fails=draw(st.sampled_from(["", "", "", "command line", "ini"])),
        options=draw(st.sampled_from([(), (), (), *OPTIONS])),
        ends=draw(st.sampled_from(["", "", "", *_ENDS])),
        order=draw(st.sampled_from(["", "", *_ORDERS])),
        broken=draw(st.sampled_from([*[""] * 12, *_FAILURES])),
        autouse=draw(st.booleans()),
        workers=draw(st.integers(0, 39)) == 39,
        replaced_stacks=draw(st.sampled_from([(), (), (), (), ("plain", "other = plain(cost=150)")])),
    )
    if focus:
        project = draw(focus(project))
    # A budget of the session is refused if no test with that stack measures.
    dear = any(group.timed and any("dear" in stack for stack in group.stacks) for _, _, group in project.groups)
    of_session = st.tuples(st.sampled_from(["ini", "command line"]), st.sampled_from(BUDGETS))
    return replace(
        project,
        budgets=tuple(draw(st.lists(of_session, max_size=1))) if dear else (),
        allowed=draw(st.sampled_from(_ALLOWED)) if project.strict else (),
    )


# -- where two features meet, drawn more often than chance would -------------------------------------------------------


@st.composite
def _interleaved(draw: st.DrawFn, project: Project) -> Project:
    """Put the tests of another module after those of two interleaved classes."""
    stacks = draw(st.sampled_from(_JUDGEABLE))
    step = steps(stacks, measures=True)
    pair = [Group((draw(step), draw(step)), stacks), Group((draw(step), draw(step)), stacks)]
    order = draw(st.sampled_from(_ORDERS))
    return replace(project, modules=(tuple(pair), project.modules[0][:1]), order=order, autouse=True, options=())


@st.composite
def _with_failing_subtest(draw: st.DrawFn, project: Project) -> Project:
    """End the session at a failed subtest, after other tests."""
    stacks = draw(st.sampled_from(_JUDGEABLE))
    failing = draw(steps(stacks, measures=True))
    deed = Deed("subtest", "fails", "dear", draw(st.sampled_from([0, 1, 2])))
    failing = replace(failing, marks=(), subtests=True, deeds=(deed,))
    module = (*project.modules[0][:1], Group((draw(steps(stacks)), failing), stacks))
    return replace(project, modules=(module,), ends=draw(st.sampled_from(_ENDS)), broken="", options=())


@st.composite
def _with_unjudged_budget(draw: st.DrawFn, project: Project) -> Project:
    """Leave out a test with a budget, beside one whose budget is judged."""
    stacks = draw(st.sampled_from(_JUDGEABLE))
    step = Step(measures=True, budgets=(Budget("cost 90%", draw(st.sampled_from(["", "dear"]))),))
    left_out = draw(
        st.sampled_from(["skip(reason='R')", "skipif(True, reason='R')", "xfail(run=False, reason='R')", ""])
    )
    other = draw(st.sampled_from(STACKS[-4:])) if not left_out else stacks
    group = Group((replace(step, marks=(left_out,) if left_out else ()),), other, is_class=draw(st.booleans()))
    module = (Group((step,), stacks), group)
    strict = draw(st.sampled_from(["command line", "ini"]))
    modules = draw(st.sampled_from([(module,), (module, project.modules[0])]))
    return replace(project, modules=modules, strict=strict, rounds=5, broken="", ends="", options=())


_LEAVING_OUT = ("skip(reason='R')", "skipif(True, reason='R')", "xfail(run=False, reason='R')")
_JUDGEABLE = tuple(dict.fromkeys(STACKS))[:2]
_ENDS = ("-x", "--maxfail=2", "--sw", "--lf")
_ORDERS = ("reversed", "shuffled", "interleaved")
_ALLOWED = (*[()] * 4, ("*R*",), ("*no-such-tool*",), ("*another*", "*[[]dear]"), ("*",))
_FAILURES = [f"{when} of_{scope}" for when in ("setup", "teardown") for scope in ("class", "module", "session")]
