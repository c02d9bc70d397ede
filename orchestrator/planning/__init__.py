"""How many VMs, where, and why. Pure."""
