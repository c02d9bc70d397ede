"""What `zen chaos` does to a stack, and how it judges the result."""
