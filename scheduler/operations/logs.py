"""Structured logs: one JSON object per line on stderr, with the `severity` that Google reads."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger


def configure_logs(level: str) -> None:
    """Once per process."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _severity,
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(serializer=_dump),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard module: warnings and worse, in the same form.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    threshold = max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()])
    logging.basicConfig(level=threshold, handlers=[handler])


class JsonFormatter(logging.Formatter):
    """A library's record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """With the library's name, and the traceback if there is one."""
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "logger": record.name,
            "timestamp": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "severity": record.levelname,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _dump(line)


def _severity(_: WrappedLogger, method: str, event: EventDict) -> EventDict:
    event["severity"] = "ERROR" if method == "exception" else method.upper()
    return event


def _dump(value: object, **_: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
