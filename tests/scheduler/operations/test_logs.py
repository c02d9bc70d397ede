"""Logs: what a log collector reads."""

from __future__ import annotations

import json
import logging

from scheduler.operations.logs import JsonFormatter


def test_a_librarys_log_is_one_line_of_json_too() -> None:
    """Its words may have several lines, and a traceback; a collector still reads one object."""
    try:
        raise OSError("away")
    except OSError as error:
        trace = (OSError, error, error.__traceback__)
    record = logging.LogRecord(
        "psycopg.pool", logging.WARNING, __file__, 1, "error in %r:\nrefused", ("pool-1",), trace
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found["message"] == "error in 'pool-1':\nrefused"
    assert (found["severity"], found["logger"]) == ("WARNING", "psycopg.pool")
    assert found["timestamp"].endswith("Z")
    assert "OSError: away" in found["exception"]
