"""Power cuts: the data that a stack still has if the power fails at some moment.

`power_cuts` in `cutting` is the step of a test. `plan` draws operations on files, and `worker` performs them on the
stack. `writelog` rebuilds the device as a cut leaves it. `promises` checks the files against the operations.
`databases` and `engine` do the same with transactions.
"""

from pytest_fsstack.damage.power.cutting import Damage as Damage, power_cuts as power_cuts
