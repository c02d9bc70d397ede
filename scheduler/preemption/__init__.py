"""Which running jobs give their place to a waiting one. Pure."""
