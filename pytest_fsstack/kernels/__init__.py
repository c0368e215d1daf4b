"""Kernels as a test parameter: each one boots in a VM, whose Python is a pytest-xdist worker.

- `images` finds kernel files, and `packages` unpacks kernel packages.
- `vm` boots a guest, and `probe` asks a guest which layers it can build.
- `launch` is the process that xdist starts instead of a Python.
- `controller` is the plugin in the user's process, and `worker` the plugin in guests. `messages` are sent between them.
- `turns` makes workers take turns.
"""
