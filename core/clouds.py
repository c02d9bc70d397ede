"""The clouds that VMs come from, by the word of a cluster's `pool`: what each bills, how long it
takes and what it allows. Plans and bills depend on these; whatever else is a cloud's own stays in
its adapter (migs/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CloudTerms:
    """The terms of one cloud."""

    billed_at_least_s: float
    """A VM is billed from RUNNING until it is off, and at least for this long: before that, giving
    it back saves nothing."""
    stops_within_s: float
    """The power of a spot VM is cut before this time has passed since the cloud began to stop it;
    past it the VM hangs."""
    request_run_min_s: float
    request_run_max_s: float
    """For how long VMs may be asked for that come all at once."""
    delivery_s: float
    """From a create call to RUNNING, until deliveries have been seen."""
    base_name_max: int
    """Characters of a VM's name before its own suffix."""
    owned: bool = False
    """Machines that are there anyway: they are not bought, and have no price of their own."""


_GOOGLE = CloudTerms(60.0, 60.0, 600.0, 7 * 86400.0, 46.0, 58)
CLOUDS: Mapping[str, CloudTerms] = {"mig": _GOOGLE, "static": replace(_GOOGLE, owned=True)}
