"""docs/reference/: pages that are made from the tables of the code, one module for each page."""
