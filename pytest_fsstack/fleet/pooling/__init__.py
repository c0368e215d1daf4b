"""Results of the same sessions on several hosts, judged together."""
