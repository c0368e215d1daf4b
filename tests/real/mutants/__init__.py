"""A FUSE filesystem with one of many bugs at a time, and the scenarios that must notice them."""
