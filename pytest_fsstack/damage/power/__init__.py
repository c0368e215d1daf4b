"""Power cuts: what a stack has of what was written and synced on it, if the power fails at some moment.

`power_cuts` is the step of a test. The parts: `plan` says what is done on the stack, `worker` does it, `writelog` has
the device as a cut leaves it, `promises` says what must be there then, `cutting` brings them together.
"""

from pytest_fsstack.damage.power.cutting import Damage as Damage, power_cuts as power_cuts
