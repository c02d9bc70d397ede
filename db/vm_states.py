"""Conditions on the state of a VM, in SQL, as its state machine in core/vm.py has them.

Partial indexes are used only by queries that have the same words.
"""

from __future__ import annotations

from core.vm import VmState

IN_FLIGHT = [state for state in VmState if state.in_flight]
(_gone,) = (state for state in VmState if state.gone)
GONE = f"state = '{_gone}'"
COUNTED = f"state <> '{_gone}'"
"""It counts against its cluster's limit."""
