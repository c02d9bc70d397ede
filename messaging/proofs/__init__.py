"""Proofs on the bus: who sent a message, that it is not sent again, and who alone may read it."""
