"""Whether a stack answers each call as it should, by a model of calls, pjdfstest, fsx and xfstests."""
