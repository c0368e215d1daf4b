"""Checks ahead of a session: the doctor, the dry run, and the commands of a stack."""
