"""The terms of the cloud: what it bills, and how long it takes and allows.

Plans and bills depend on them; whatever else is the cloud's own stays in its adapter (migs/).
"""

from __future__ import annotations

BILLED_AT_LEAST_S = 60.0
"""A VM is billed from RUNNING until it is off, and at least for this long: before that, giving it
back saves nothing."""
STOPS_WITHIN_S = 60.0
"""The power of a spot VM is cut half a minute after the cloud began to stop it; past this it hangs.
"""
REQUEST_RUN_MIN_S, REQUEST_RUN_MAX_S = 600.0, 7 * 86400.0
"""For how long VMs may be asked for that come all at once."""
DELIVERY_S = 46.0
"""From a create call to RUNNING, until deliveries have been seen."""
