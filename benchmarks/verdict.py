"""How often is a verdict wrong, and what does it find? Print it, beside what comparing two means says.

    python -m benchmarks verdict [sessions [seed]] [section ...]

Simulated sessions of a baseline and a stack whose true overhead is known, judged by the plugin's own `judge` with its
default plan of looks: a session ends where its verdict says so. The machines are those of `benchmarks.machines`. The
rules of others (`benchmarks.rules`) see the baseline run eight times, and then the stack eight times. "Finds 10 %" is
a true overhead of 1.05 x 1.10 - 1 = 15.5 %. Behind ± is the standard error.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable
from math import exp

    "estimates": estimates.coverage,
    "ticks": estimates.ticks,
    "advice": estimates.advice,
