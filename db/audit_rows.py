"""Rows of the audit log, written with the change that they tell of."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from core.audit_log import AuditEntry
from core.text import clean
from db.rows import BulkColumn, Shape, to_json

AUDIT: Shape[AuditEntry] = Shape(
    (
        BulkColumn("at", "timestamptz", lambda entry: entry.at),
        BulkColumn("principal", "text", lambda entry: clean(entry.actor.principal)),
        BulkColumn("user_id", "text", lambda entry: clean(entry.actor.user_id)),
        BulkColumn("address", "text", lambda entry: clean(entry.actor.address)),
        BulkColumn("request_id", "text", lambda entry: clean(entry.actor.request_id)),
        BulkColumn("action", "text", lambda entry: str(entry.action)),
        BulkColumn("target", "text", lambda entry: clean(entry.target)),
        BulkColumn("tenant_id", "text", lambda entry: clean(entry.tenant_id)),
        BulkColumn("outcome", "text", lambda entry: clean(entry.outcome)),
        BulkColumn("detail", "jsonb", lambda entry: to_json(entry.detail)),
    )
)
INSERT_AUDIT = f"INSERT INTO audit_log ({AUDIT.names}) SELECT {AUDIT.names} FROM {AUDIT.rows}"
