"""Whether a stack keeps its promises: calls, power cuts and altered bytes. The core does not import this wing."""
