"""What a session gives to the CI that it runs in."""
