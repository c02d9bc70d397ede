"""Structured logs: one JSON object per line on stderr, with the `severity` that Google reads."""

from __future__ import annotations

import logging
import sys

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
    # Libraries that log through the standard module get the same threshold, in plain lines.
    logging.basicConfig(level=max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))


def _severity(_: WrappedLogger, method: str, event: EventDict) -> EventDict:
    event["severity"] = "ERROR" if method == "exception" else method.upper()
    return event


def _dump(value: object, **_: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
