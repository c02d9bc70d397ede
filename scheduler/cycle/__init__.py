"""The leader's scheduling cycle: heartbeats, lost VMs, the plan, the outbox, leadership."""
