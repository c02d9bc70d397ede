"""zen clients verify: the real programs of other systems, run against a stack of their own."""
