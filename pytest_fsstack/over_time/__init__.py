"""Runs compared with earlier ones: history, gates, trends."""
