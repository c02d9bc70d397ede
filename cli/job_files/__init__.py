"""Job files: read with the place of everything in them, filled in, and checked."""
