"""The round loop: chains, their protocol, budgets and progress."""
