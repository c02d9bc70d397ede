"""What regions delivered and refused, as observations tell it. Pure."""
