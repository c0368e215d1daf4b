"""Small projects, drawn at random, and an oracle that says what must hold for each of them.

``python -m tests.combinations --seconds N --seed S`` draws projects for some time. `projects` draws and writes them,
`sessions` runs them, and `oracle` has the rules. The first project that breaks a rule is shrunk and printed as files.
"""
