"""Who calls: credentials become principals."""
