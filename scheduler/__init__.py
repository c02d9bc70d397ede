"""Decides who runs next, tells the workers, listens to them, and serves the API."""
