"""Jobs that run in a container."""
