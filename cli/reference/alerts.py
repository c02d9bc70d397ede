"""The page of all alerts."""

from __future__ import annotations

from cli.reference.markdown import MADE_BY
from core.alerts import ALERTS

_HEAD = f"""\
# Alerts

{MADE_BY}
An alert is something that a human should know. `zen alerts` and `GET /api/v1/alerts` list the open
ones; the metric `gpu_scheduler_alerts` counts them by kind and severity. An alert is open once for
each subject, and is cleared when what it says is over."""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for _, kind in sorted(ALERTS.items()):
        parts += [
            f"\n## `{kind.name}`\n",
            f"Severity: {kind.severity}. Subject: {kind.subject}.\n",
            f"{kind.meaning}\n",
            f"**What to do:** {kind.action}",
        ]
    return "\n".join(parts) + "\n"
