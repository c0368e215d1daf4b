"""Damage to the devices of a stack: altered bytes (`rot`), and power cuts (`power`).

`plan` draws operations on files, and `perform` performs them on the stack. `writelog` rebuilds the device as a power
cut leaves it. `promises` checks the files against the operations. `databases` and `commit` do the same with
transactions of databases.
"""
