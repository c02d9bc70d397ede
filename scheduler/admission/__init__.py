"""Which waiting jobs become demand, and the pending reason of those that do not. Pure."""
