"""Person tokens of other people's issuers: fetched keys, checked signatures."""
