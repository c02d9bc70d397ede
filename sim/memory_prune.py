"""Retention in memory: the same bites as db/retention.py takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from core.reads import AttemptRow
from core.retention import RetentionRules
from sim.memory_tables import Tables


def prune(tables: Tables, rules: RetentionRules, batch: int, now: datetime) -> Mapping[str, int]:
    """At most `batch` rows of each table that are over for longer than the rules keep them."""

    def before(days: float) -> datetime:
        return now - timedelta(days=days)

    sent = tables.sent_by_age.before(before(rules.outbox_days), batch)
    for key in sent:
        tables.sent_by_age.discard(key)
        del tables.sent[key[1]]
    letters = tables.letters_by_age.before(before(rules.dead_letters_days), batch)
    for letter in letters:
        tables.letters_by_age.discard(letter)
        del tables.letters[letter[1]]
    settled = tables.settled.before(before(rules.requests_days), batch)
    for request in settled:
        tables.settled.discard(request)
        del tables.requests[request[1]]
    gone = tables.gone.before(before(rules.vms_days), batch)
    for vm in gone:
        tables.gone.discard(vm)
        del tables.vms[vm[1]]
    cleared = tables.cleared.before(before(rules.alerts_days), batch)
    for alert in cleared:
        tables.cleared.discard(alert)
        del tables.alerts[alert[1]]
    events, attempts = _prune_jobs(tables, before(rules.events_days), batch)
    return {
        "outbox": len(sent),
        "dead_letters": len(letters),
        "cloud_requests": len(settled),
        "vms": len(gone),
        "alerts": len(cleared),
        "job_events": events,
        "attempts": attempts,
    }


def _prune_jobs(tables: Tables, ended_before: datetime, batch: int) -> tuple[int, int]:
    """A job leaves the list when nothing of its history is left."""
    events = attempts = 0
    for key in tables.ended.before(ended_before, batch):
        record = tables.jobs[key[1]]
        bite = record.events[: batch - events]
        del record.events[: len(bite)]
        record.dedup_keys -= {row.entry.dedup_key or "" for row in bite}
        events += len(bite)
        for number in sorted(record.attempts)[: batch - attempts]:
            attempt = record.attempts.pop(number)
            record.past_cost_usd += cost_usd(attempt, attempt.assigned_at)
            attempts += 1
        if not record.events and not record.attempts:
            tables.ended.discard(key)
    return events, attempts


def cost_usd(attempt: AttemptRow, now: datetime) -> float:
    """What an attempt has cost so far."""
    spent_s = ((attempt.ended_at or now) - attempt.assigned_at).total_seconds()
    return spent_s / 3600 * attempt.usd_per_hour
