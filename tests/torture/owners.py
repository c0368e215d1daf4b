"""The owner of the directory in which root's session works, who exchanges names in it at any moment."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.real.test_other_users import contents
from tests.torture.place import Figures, Place, code_of, quick_stacks

#: Runs as the owner of the directory: whatever the session makes in it becomes a link to the victim.
_ATTACK = """
import os, random, sys, time
os.setgid(65534); os.setuid(65534)
directory, victim, seed = sys.argv[1:]
draw = random.Random(seed)
while True:
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if not name.startswith("fsstack-") or os.path.islink(path) or draw.random() < 0.5:
            continue
        try:
            os.rename(path, f"{directory}/moved-{draw.random()}")
            how = draw.choice(("link", "link", "directory", "nothing"))
            if how == "link":
                os.symlink(victim, path)
            elif how == "directory":
                os.mkdir(path, 0o777)
        except OSError:
            pass
    time.sleep(draw.random() * float(0.2))
"""


def owners(place: Place) -> Figures:
    """Root works in a directory of nobody's, who redirects it to files that are root's alone."""
    directory, victim = place.directory / "theirs", place.directory / "victim"
    place.directory.chmod(0o755)
    subprocess.run(["rm", "-rf", "--one-file-system", directory, victim], check=True)
    directory.mkdir()
    directory.chmod(0o777)
    (victim / "data").mkdir(parents=True)
    for path in victim / "precious", victim / "data" / "precious":
        path.write_text("precious")
        path.chmod(0o600)
    before = contents(victim)
    place.write(*place.random.sample(quick_stacks(), 2))
    seed = str(place.random.getrandbits(32))
    attacker = subprocess.Popen([sys.executable, "-c", _ATTACK, directory, victim, seed], start_new_session=True)
    try:
        device = place.random.choice(("loop", f"dir:{directory}", str(place.device)))
        if device.startswith("dir:"):
            place.write("directory", "gocryptfs")
        with place.session("--fsstack-rounds=2", f"--fsstack-dir={directory}", device=device) as process:
            code = code_of(process)
    finally:
        attacker.kill()
        attacker.wait()
    what = f"{device} in a directory whose owner moves things (seed {seed})"
    figures: Figures = Counter({"cases": 1})
    if contents(victim) != before:
        figures += place.wrong("outside", f"{what}: files elsewhere were changed: {contents(victim)}")
    if code is None or code not in (0, 1, 4):
        figures += place.wrong("hung" if code is None else "wrong exit code", f"{what}: exit code {code}")
    figures += place.tracebacks(what)
    place.clean_up()
    # What was moved away is the owner's to remove.
    figures += place.figures_of_what_is_left(process.pid, what=what, allowed=("journals", "directories"))
    for journal in place.left(process.pid)["journals"]:
        Path(journal).unlink()
    return figures + place.put_in_order(what, admitted=True, dead=process.pid)
