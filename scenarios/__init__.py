"""Scenarios that anybody can repeat: each file answers one question about storage, on the device that it is given."""
