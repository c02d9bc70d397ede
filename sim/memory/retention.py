"""Retention in memory: the same bites as db/retention.py takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from core.retention import RetentionRules
from sim.memory.tables import Tables


def prune(tables: Tables, rules: RetentionRules, batch: int, now: datetime) -> Mapping[str, int]:
    """At most `batch` rows of each table that are over for longer than the rules keep them."""

    def before(days: float) -> datetime:
        return now - timedelta(days=days)

    sent = tables.sent_by_age.before(before(rules.outbox_days), batch)
    for key in sent:
        tables.sent_by_age.discard(key)
        del tables.sent[key[1]]
    dead_letters = tables.dead_letters_by_age.before(before(rules.dead_letters_days), batch)
    for dead_letter in dead_letters:
        tables.dead_letters_by_age.discard(dead_letter)
        del tables.dead_letters[dead_letter[1]]
    settled = tables.settled.before(before(rules.requests_days), batch)
    for request in settled:
        tables.settled.discard(request)
        del tables.requests[request[1]]
    old = tables.gone.before(before(rules.vms_days), len(tables.gone))
    gone = [vm for vm in old if vm[1] not in tables.unsettled][:batch]
    for vm in gone:
        tables.gone.discard(vm)
        del tables.vms[vm[1]]
        tables.stays.pop(vm[1], None)
    cleared = tables.cleared.before(before(rules.alerts_days), batch)
    for alert in cleared:
        tables.cleared.discard(alert)
        del tables.alerts[alert[1]]
    known = _prune_knowledge(tables, before(rules.knowledge_days), batch)
    events, attempts, waits = _prune_jobs(tables, before(rules.events_days), batch)
    return {
        "outbox": len(sent),
        "dead_letters": len(dead_letters),
        "cloud_requests": len(settled),
        "vms": len(gone),
        "alerts": len(cleared),
        "experience": known[0],
        "troubles": known[1],
        "job_events": events,
        "attempts": attempts,
        "job_waits": waits,
    }


def _prune_knowledge(tables: Tables, before: datetime, batch: int) -> tuple[int, int]:
    """Few rows, so no index keeps their ages."""
    places = [p for p, seen in tables.supply.items() if seen.updated_at < before][:batch]
    keys = [key for key, block in tables.blocks.items() if block.last_seen < before][:batch]
    for place in places:
        del tables.supply[place]
    for key in keys:
        del tables.blocks[key]
    return len(places), len(keys)


def _prune_jobs(tables: Tables, ended_before: datetime, batch: int) -> tuple[int, int, int]:
    """A job leaves the list when nothing of its history is left."""
    events = attempts = waits = 0
    for key in tables.ended.before(ended_before, batch):
        record = tables.jobs[key[1]]
        bite = record.events[: batch - events]
        del record.events[: len(bite)]
        record.dedup_keys -= {row.entry.dedup_key or "" for row in bite}
        events += len(bite)
        settled = [n for n in sorted(record.attempts) if _settled(tables, key[1], n)]
        for number in settled[: batch - attempts]:
            del record.attempts[number]
            attempts += 1
        for row in list(record.waits)[: batch - waits]:
            del record.waits[row]
            waits += 1
        if not record.events and not record.attempts and not record.waits:
            tables.ended.discard(key)
    return events, attempts, waits


def _settled(tables: Tables, uid: str, number: int) -> bool:
    """What the attempt cost is in the daily sums."""
    row = tables.jobs[uid].attempts[number]
    vm_uid = tables.lease_ids.get(row.lease_id, "")
    if vm_uid not in tables.unsettled:
        return True
    until = tables.vms[vm_uid].settled_until
    return until is not None and row.ended_at is not None and row.ended_at <= until
