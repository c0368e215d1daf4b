"""Layers that make volumes: of several devices of the session, of slices of one, or with a cache in front."""
