"""Lists of jobs, newest first: which query finds a page from an index, and how many there are."""
# ruff: noqa: S608  # only our own conditions are put into these texts

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.job_fields import FILTERS, JobField
from core.pages import COUNTED_MAX, PageRequest
from core.reads import JobFilter
from db.job_counts import OF_ALL, listed
from db.rows import to_json

OFFSET_NEAR = 1000
_ORDER = "ORDER BY {0}.submitted_at DESC, {0}.uid DESC"
_AFTER = "({0}.submitted_at, {0}.uid) < (%(at)s, %(uid)s)"
# Of a member what it shares with others.
_DOCUMENT = "coalesce((SELECT s.document FROM specs AS s WHERE s.spec_id = j.spec_id), j.spec)"


def _spec_condition(known: JobField) -> str:
    """By its column; a field without one is looked up in the document."""
    if known.column:
        return f"j.{known.column} = %({known.name})s"
    return f"({_DOCUMENT})->'{known.attribute}' = %({known.name})s::jsonb"


_OF_TENANTS = "{0}.tenant_id = ANY(%(tenants)s::text[])"
_CONDITIONS = {
    **{known.name: _spec_condition(known) for known in FILTERS},
    "statuses": "j.status = ANY(%(statuses)s::text[])",
    "cluster": "j.cluster = %(cluster)s",
    "labels": "j.labels @> %(labels)s::jsonb",
    # Of a gang people see the job with rank 0; its members are shown with it.
    "alone": "j.rank = 0",
    "job_ids": "j.job_id = ANY(%(job_ids)s::text[])",
    "tenants": _OF_TENANTS.format("j"),
}
_IN_KEY = frozenset({"tenant_id", "user_id", "cluster", "statuses", "tenants", "alone"})
"""What `job_counts` can be asked for."""
_FEW = frozenset({"tenant_id", "user_id", "group", "job_ids"})
"""Conditions that lead to few rows, or to an index that has them in order."""
# Of each value of a list the newest by index, then the newest of these.
_OF_EACH = """
SELECT p.uid FROM {} CROSS JOIN LATERAL (
    SELECT j.submitted_at, j.uid FROM jobs AS j WHERE {} {} LIMIT %(size)s + %(offset)s
) AS p {} LIMIT %(size)s OFFSET %(offset)s
"""
# Clusters and statuses of which there are jobs.
_KINDS = f"""
(SELECT cluster, status FROM job_counts AS j WHERE {OF_ALL} AND {{}}
    GROUP BY 1, 2 HAVING sum(listed) > 0) AS k
"""
_LABEL = "l.label = md5(%(label)s)::uuid"


@dataclass(frozen=True, slots=True)
class JobList:
    """One question for a page of jobs, as SQL."""

    words: Mapping[str, Any]
    """Filter → its value; None: no restriction. `label`: the first of the labels."""
    labels: int

    @staticmethod
    def of(where: JobFilter) -> JobList:
        labels = dict(sorted(where.labels.items()))
        return JobList(
            {
                **{f.name: _spec_value(f, where.fields.get(f.name)) for f in FILTERS},
                "statuses": [str(status) for status in where.statuses] or None,
                "cluster": where.cluster,
                "labels": to_json(labels) if labels else None,
                "job_ids": list(where.job_ids) or None,
                "tenants": where.tenants.only,
                "alone": None if where.job_ids else True,
                "label": "=".join(next(iter(labels.items()))) if labels else None,
            },
            len(labels),
        )

    @property
    def question(self) -> tuple[object, ...]:
        """What the tokens of its pages are bound to."""
        known = (*(f.name for f in FILTERS), "statuses", "cluster", "labels", "job_ids", "tenants")
        return ("jobs", *(self.words[name] for name in known))

    @property
    def asked(self) -> tuple[str, ...]:
        return tuple(name for name in _CONDITIONS if self.words[name] is not None)

    @property
    def counts_are_kept(self) -> bool:
        """Whether the total is exact, whatever it is."""
        return _IN_KEY.issuperset(self.asked)

    @property
    def _by_label(self) -> bool:
        return "labels" in self.asked and not _FEW.intersection(self.asked)

    def _where(self, *without: str) -> list[str]:
        return [_CONDITIONS[name] for name in self.asked if name not in without]

    def count(self) -> str:
        """Exact where counts are kept; else no more than COUNTED_MAX + 1 rows are read."""
        if self.counts_are_kept:
            return listed(self._where("alone"), every_tenant=self.words["tenants"] is None)
        rows, where = self._labelled() if self._by_label else ("jobs AS j", self._where())
        some = f"SELECT 1 FROM {rows} WHERE {' AND '.join(where)} LIMIT {COUNTED_MAX + 1}"
        return f"SELECT count(*) FROM ({some}) AS x"

    def page(self, request: PageRequest, offset: int) -> tuple[str, dict[str, Any]]:
        """Rows of `uid`, with one more if there is more."""
        place = request.after
        ends = {"at": place and place.at, "uid": place and place.uid, "size": request.size + 1}
        text = self._page(later=place is not None, far=offset > OFFSET_NEAR)
        return text, {**self.words, **ends, "offset": offset}

    def _page(self, *, later: bool, far: bool) -> str:
        """`far`: so many rows are passed over that reading them once is cheapest."""
        after = [_AFTER.format("j")] if later else []
        if self._by_label:
            rows, where = self._labelled()
            alias = "j" if "jobs" in rows else "l"
            return _plain(alias, rows, [*where, *([_AFTER.format(alias)] if later else [])])
        if far or not _FEW.isdisjoint(self.asked):
            return _plain("j", "jobs AS j", [*self._where(), *after])
        if self.words["tenants"] is not None:
            where = ["j.tenant_id = t.tenant_id", *self._where("tenants"), *after]
            return _of_each("unnest(%(tenants)s::text[]) AS t(tenant_id)", where)
        if {"cluster", "statuses"}.isdisjoint(self.asked):
            return _plain("j", "jobs AS j", [*self._where(), *after])
        kinds = _KINDS.format(" AND ".join(self._where("alone")))
        kind = ["j.cluster = k.cluster", "j.status = k.status"]
        return _of_each(kinds, [*kind, *self._where("cluster", "statuses"), *after])

    def _labelled(self) -> tuple[str, list[str]]:
        """The rows of one label; joined with their jobs where these must fit more than that. By
        both columns of the order: then either table's index has the rows in it."""
        if self.labels == 1 and {"labels", "alone", "tenants"}.issuperset(self.asked):
            only = "tenants" in self.asked
            return "job_labels AS l", [_LABEL, *([_OF_TENANTS.format("l")] if only else [])]
        return "job_labels AS l JOIN jobs AS j USING (submitted_at, uid)", [_LABEL, *self._where()]


def _plain(alias: str, rows: str, where: list[str]) -> str:
    limit = "LIMIT %(size)s OFFSET %(offset)s"
    conditions = " AND ".join(where)
    return f"SELECT {alias}.uid FROM {rows} WHERE {conditions} {_ORDER.format(alias)} {limit}"


def _of_each(values: str, where: list[str]) -> str:
    newest, merged = _ORDER.format("j"), _ORDER.format("p")
    return _OF_EACH.format(values, " AND ".join(where), newest, merged)


def _spec_value(known: JobField, value: object) -> object:
    return value if known.column or value is None else to_json(value)
