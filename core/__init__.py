"""The words everyone shares: pure values and rules, standard library only."""
