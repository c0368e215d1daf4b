"""Correctness of a stack, call by call: a model of calls, pjdfstest, fsx and xfstests."""
