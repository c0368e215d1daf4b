"""Sessions that lack something of the machine: space, loop devices, descriptors, the size of a file."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable

from tests.torture.faults import judged
from tests.torture.place import Figures, Place, code_of, quick_stacks

#: In a mount namespace of its own: prepare, run the session, and name what it has left in what will vanish.
_AROUND = """
{prepare}
"$@"
code=$?
find {full} -name 'fsstack-*' >{left} 2>/dev/null
find /run/pytest-fsstack -mindepth 1 -name '*-*' >>{left} 2>/dev/null
exit $code
"""


def shortage(place: Place) -> Figures:
    """One thing is short, by a drawn amount."""
    full = place.directory / "full"
    full.mkdir(exist_ok=True)
    kind = place.random.choice(sorted(_KINDS))
    prepare, words, device = _KINDS[kind](place)
    stack = place.random.choice(quick_stacks())
    place.write(stack)
    left = place.directory / "left"
    what = f"`{stack}`, {kind}: {prepare or ' '.join(words)}"
    script = _AROUND.format(
        prepare=f"mount -t tmpfs none /run/pytest-fsstack 2>/dev/null || exit 99\n{prepare}",
        full=shlex.quote(str(full)),
        left=shlex.quote(str(left)),
    )
    # The directory must be there to be mounted on.
    subprocess.run(["mkdir", "-p", "/run/pytest-fsstack"], check=True)
    where = [f"--basetemp={full / 'tmp'}", f"--fsstack-dir={full}"] if kind == "full disk" else []
    reports = [f"--fsstack-json={full}/out.json", f"--fsstack-report=html={full}/out.html", "-ra"]
    before = ["unshare", "-m", "sh", "-c", script, "sh", *words]
    with place.session("--fsstack-rounds=1", *reports, *where, device=device, before=before) as process:
        code = code_of(process)
    figures: Figures = Counter({"cases": 1})
    if not place.begun and code:
        # Python or pytest itself could not begin with so little.
        figures["not needed"] += 1
        # What pytest does may pass through a wrapper of the plugin.
        if re.search(r'/pytest_fsstack/.*", line \d+.*\n(?!\s*return \(yield\)\n)', place.output):
            figures += place.wrong("traceback", f"{what}: a traceback")
    else:
        figures += judged(place, what, code)
    if left.exists() and (names := left.read_text().strip()):
        place.complain(f"{what}: left behind: {names}")
        figures["directories"] += 1
    left.unlink(missing_ok=True)
    figures += place.figures_of_what_is_left(process.pid, what=what)
    figures += place.out_of_order(what)
    figures += place.put_in_order(what, admitted=bool(code))
    for path in full.iterdir():
        if path.is_file():
            path.unlink()
    return figures


_Kind = Callable[[Place], tuple[str, list[str], str]]


def _full_disk(place: Place) -> tuple[str, list[str], str]:
    size = int(2 ** place.random.uniform(12, 26))
    full = shlex.quote(str(place.directory / "full"))
    return f"mount -t tmpfs -o size={size} none {full} || exit 99", [], "loop"


def _full_journal(place: Place) -> tuple[str, list[str], str]:
    # A page and the directory itself: what is left is for nobody.
    inodes, room = place.random.choice((1, 2, 3, 50)), place.random.choice((4096, 8192))
    fill = f"head -c {room} /dev/zero >/run/pytest-fsstack/.fill 2>/dev/null; true"
    options = f"size={room},nr_inodes={inodes},mode=700"
    return (
        f"mount -t tmpfs -o {options} none /run/pytest-fsstack || exit 99; {fill}",
        [],
        place.random.choice(("loop", str(place.device))),
    )


def _no_loop_control(place: Place) -> tuple[str, list[str], str]:
    return "mount --bind /dev/null /dev/loop-control || exit 99", [], "loop"


def _no_loop_nodes(place: Place) -> tuple[str, list[str], str]:
    """The kernel has free loop devices, but /dev has none of them."""
    nodes = "null zero full random urandom fuse loop-control"
    touch_and_bind = f"for name in {nodes}; do touch /mnt/$name && mount --bind /dev/$name /mnt/$name; done"
    return f"mount -t tmpfs none /mnt && {touch_and_bind} && mount --rbind /mnt /dev || exit 99", [], "loop"


def _few_descriptors(place: Place) -> tuple[str, list[str], str]:
    count = place.random.randint(8, 60)
    return "", ["prlimit", f"--nofile={count}:{count}"], place.random.choice(("loop", str(place.device)))


def _small_files(place: Place) -> tuple[str, list[str], str]:
    size = int(2 ** place.random.uniform(10, 28))
    return "", ["prlimit", f"--fsize={size}:{size}"], place.random.choice(("loop", str(place.device)))


_KINDS: dict[str, _Kind] = {
    "full disk": _full_disk,
    "full journal": _full_journal,
    "no loop device": _no_loop_control,
    "no node of a loop device": _no_loop_nodes,
    "few descriptors": _few_descriptors,
    "small files": _small_files,
}
