"""The same session on many hosts: laboratories, and pooling. The core does not import this wing."""
