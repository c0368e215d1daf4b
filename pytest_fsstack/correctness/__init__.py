"""Whether a stack keeps what it is given: what the scenarios about bit rot, power cuts, POSIX and contents stand on."""
