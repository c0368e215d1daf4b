"""From samples to verdicts. Pure: it knows neither the machine nor pytest."""
