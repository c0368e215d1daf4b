"""Reports and annotations for the CI that a session runs in."""
