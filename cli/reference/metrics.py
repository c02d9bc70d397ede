"""The page of all metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.reference.markdown import MADE_BY, cell, code, table

if TYPE_CHECKING:
    from prometheus_client.metrics import MetricWrapperBase

_HEAD = f"""\
# Metrics

{MADE_BY}
`GET /metrics` answers in the format of Prometheus. Counters are kept by each replica: add them up.
What to watch and why: [Watch](../operator/watch.md).
"""


def page() -> str:
    """The whole page."""
    from prometheus_client.metrics import MetricWrapperBase

    from scheduler.operations.metrics import Metrics

    rows = [
        _row(metric) for metric in vars(Metrics()).values() if isinstance(metric, MetricWrapperBase)
    ]
    return "\n".join([_HEAD, table(("Name", "Kind", "Labels", "Meaning"), sorted(rows))])


def _row(metric: MetricWrapperBase) -> tuple[str, ...]:
    (described,) = metric.describe()
    name = f"{described.name}_total" if described.type == "counter" else described.name
    names = metric._labelnames  # noqa: SLF001  # the library tells them nowhere else
    return code(name), described.type, ", ".join(map(code, names)), cell(described.documentation)
