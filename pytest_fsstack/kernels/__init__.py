"""Kernels as a test parameter: each one boots in a VM, whose Python is a pytest-xdist worker.

`kernels` finds kernel files, `vm` starts a machine on one, `probe` asks one what it can build, `launch` is the
process that xdist starts in place of a Python, `turns` makes workers take turns, `comparison` puts kernel beside
kernel, `controller` is the plugin that ties them together in the process that the user started.
"""
