"""Inputs of workloads: corpora, archives, noise, and their sizes."""
