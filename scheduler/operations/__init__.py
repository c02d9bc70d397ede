"""Live configuration, costs, retention, dead letters, metrics, logs."""
