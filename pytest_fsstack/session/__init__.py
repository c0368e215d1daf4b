"""A pytest session that builds stacks: parameters, selection, building, environment and ending."""
