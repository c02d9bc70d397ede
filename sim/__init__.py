"""The pretend Google Cloud: one model of its physics, run in two ways.

The model (``physics``, ``capacity``, ``faults``, ``world``) is pure: it has no clock and does no
I/O. Every call takes ``now``, and its dice are seeded, so the same seed and the same calls give the
same history. A simulator can run it in virtual time.

Around it stands the driver for real time: a Compute REST server (``compute_server``), an instance
metadata server per VM (``metadata_server``) and a real process for every VM that is powered on
(``machines``). ``server.PretendCloud`` puts them together; ``python -m sim`` runs it.

Nothing here decides anything about jobs, and nothing of the service imports it.
"""
