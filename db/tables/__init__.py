"""The schema. Its CHECK constraints are made from core's tables, so a state that the machine
forbids cannot be stored by any writer. Queries are raw SQL elsewhere in db/."""

from db.tables import access, capacity, code, job_lists, jobs, operations
from db.tables.columns import metadata

__all__ = ["access", "capacity", "code", "job_lists", "jobs", "metadata", "operations"]
