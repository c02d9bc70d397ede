"""The directory that a job is given: which one, what of it, and how it gets to the service."""
