"""Calls to the groups, and what is kept between two of them."""
