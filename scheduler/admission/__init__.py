"""Which waiting jobs become demand, and the pending reason of the others. Pure."""
