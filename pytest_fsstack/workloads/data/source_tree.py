"""A tree shaped like the source of a program, generated from a seed, as an archive."""

from __future__ import annotations

from typing import IO

from pytest_fsstack.workloads.data.backup import header
from pytest_fsstack.workloads.data.noise import noise, numbers

_DEPTH = 6

_SYLLABLES = """
ab add alloc arch bit blk buf bus cache call check clk cmd con copy count cpu ctl cur data del desc dev dma drv en
end err ev ext fd fill find fix flag flush fn free fs get grp handle hash hdr head host hw id idx in info init io
irq item key kick last len level line link list load lock log loop map mask max mem mgr min mod msg mux name net
new next nr num obj off op opt out own pack page param parse path pci pend phy pin poll pool port pos pre priv
probe proc ptr put queue rate raw read reg rel req res ret ring root rx scan sec seg sel send set shift size skb
slot sock spin start stat step stop str sub sum sync sys tab tag task test time timer tmp top trace tx type unit up
user val vec ver vm wait walk wake word work write xfer zone
"""

_LICENSE = """\
/*
 * This program is free software; you can redistribute it and/or modify it under the terms of the licence that comes
 * with it, either version 2 of that licence, or (at your option) any later version.
 *
 * This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied
 * warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the licence for more details.
 */

"""

_STATEMENTS = (
    "\t%s = %s(%s);\n",
    "\t%s->%s = %s;\n",
    "\t%s(%s, %s);\n",
    "\tif (%s)\n\t\treturn %s;\n",
    "\tif (!%s->%s) {\n\t\t%s(%s);\n\t\tgoto %s;\n\t}\n",
    "\tfor (%s = 0; %s < %s; %s++)\n\t\t%s(%s[%s], %s);\n",
    "\tstruct %s *%s = %s(%s);\n",
    "\t/* the %s of a %s %s must be %s before its %s */\n",
    "}\n\nstatic int %s(struct %s *%s, int %s)\n{\n",
    "}\n\nstatic void %s(struct %s *%s)\n{\n",
    "\tcase %s:\n\t\t%s |= %s;\n\t\tbreak;\n",
    "\tdev_err(%s, \"%s: %s %s failed\\n\", %s);\n",
    "\tspin_lock(&%s->%s);\n\t%s(%s);\n\tspin_unlock(&%s->%s);\n",
    "\treturn %s(%s, %s, %s);\n",
    "\t%s &= ~(%s << %s);\n",
    "}\n\n#define %s(%s)\t\t(%s + %s)\n\n{\n",
)  # fmt: skip


def write_tree(out: IO[bytes], seed: int, files: int, size: int, count: int) -> None:
    """Write an archive of `files` files in `count` directories, with `size` bytes in total."""
    directories, contents = _layout(seed, files, size, count)
    words = _words(seed)
    for path in sorted([*directories, *contents]):
        if path in contents:
            text = _text(words, contents[path], seed, path)
            out.write(header(path, b"0", size=len(text), owner=b"root") + text + bytes(-len(text) % 512))
        else:
            out.write(header(path + "/", b"5", owner=b"root"))
    out.write(bytes(2 * 512))


def _layout(seed: int, files: int, size: int, count: int) -> tuple[list[str], dict[str, int]]:
    """Return `count` directories, and files with their sizes in bytes."""
    names, syllables = numbers(files, seed, "names"), _SYLLABLES.split()
    top = f"source-{seed}"
    directories = [top]
    for index, number in enumerate(numbers(count - 1, seed, "directories")):
        parent = directories[number * number * len(directories) >> 32]
        if parent.count("/") >= _DEPTH:
            parent = top
        directories.append(f"{parent}/{syllables[names[index] % len(syllables)]}{index}")
    paths = []
    for index, number in enumerate(numbers(files, seed, "places")):
        directory = directories[number * len(directories) >> 16]
        suffix = (".c", ".c", ".c", ".h", ".h", ".S", ".txt")[names[index] % 7]
        paths.append(f"{directory}/{syllables[names[index] % len(syllables)]}_{index}{suffix}")
    return directories, dict(zip(paths, _sizes(seed, files, size), strict=True))


def _sizes(seed: int, files: int, size: int) -> list[int]:
    """Return log-normal sizes. The median is a quarter of the mean, as in the source of Linux 6.1."""
    weights = []
    for index in range(files):
        # Sums and products only, because C libraries differ in the last bits of logarithms and exponentials. The sum of
        # twelve uniform numbers is nearly normal, and exp(x) is nearly (1 + x / 1024) ** 1024.
        normal = sum(numbers(12, seed, "size", index)) / 65536 - 6
        weight = 1 + 1.7 * normal / 1024
        for _ in range(10):
            weight *= weight
        weights.append(int(1e6 * weight))
    total = sum(weights)
    sizes = [weight * size // total for weight in weights]
    sizes[-1] += size - sum(sizes)
    return sizes


def _words(seed: int) -> list[str]:
    """Return identifiers, repeated by Zipf's law, so a random choice follows their frequencies."""
    table, syllables = [], _SYLLABLES.split()
    for rank, number in enumerate(numbers(8192, seed, "words")):
        first, second = divmod(number, 256)
        word = syllables[first % len(syllables)] + "_" + syllables[second % len(syllables)]
        if rank % 4 == 0:
            word += f"_{syllables[rank % len(syllables)]}"
        elif rank % 4 == 1:
            word = syllables[first % len(syllables)]
        table += [word] * max(1, 8192 // (rank + 3))
    return table


def _text(words: list[str], size: int, seed: int, path: str) -> bytes:
    parts = [_LICENSE]
    length = len(_LICENSE)
    while length < size:
        # Each part of a program has its own vocabulary.
        local = [words[number % len(words)] for number in numbers(128, seed, path, length)] * 2
        shapes = [_STATEMENTS[byte % len(_STATEMENTS)] for byte in noise(512, seed, path, length, "shapes")]
        form = "".join(shapes)
        part = form % tuple(map(local.__getitem__, noise(form.count("%s"), seed, path, length, "words")))
        parts.append(part)
        length += len(part)
    return "".join(parts).encode()[:size]
