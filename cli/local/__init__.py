"""The local stack: its processes, its configuration, its directories."""
