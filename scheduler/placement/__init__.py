"""Which VM and which GPUs a job gets: alone, as a gang, elastic; what-if simulations. Pure."""
