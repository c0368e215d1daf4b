"""A pytest session that builds stacks: what its tests ask for, what stands, what it says in the end."""
