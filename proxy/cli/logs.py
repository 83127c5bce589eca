"""Logs each record as a line of text or JSON to the standard error. No line holds a key, even if a library wrote the
record.

The proxy's own lines hold no keys. Libraries quote addresses, headers and exceptions, so their lines pass through here
as well.
"""

import asyncio
import json
import logging
import sys
from datetime import UTC, datetime

from proxy.core.secrets.redaction import without_keys
from proxy.engine.access_log import Line

_INCOMPLETE = "ASGI callable returned without completing response."


class Formatter(logging.Formatter):
    """Formats a record, including its traceback, and removes texts that look like keys."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.name == "stratiform" and record.exc_info is None else without_keys(text)


class JsonFormatter(Formatter):
    """Formats a record as an object of JSON. The line of an exchange has a member for each of its values."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        if isinstance(record.msg, Line):
            found |= {"message": record.msg.about, **record.msg.values}
        else:
            found["message"] = super().format(record)
        return json.dumps(found, default=float)


def log_to_stderr(level: str, log_format: str = "text") -> None:
    """From now on log every record of at least that level, as text or as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    text = "%(asctime)s %(levelname)s %(name)s %(message)s"
    handler.setFormatter(JsonFormatter("%(message)s") if log_format == "json" else Formatter(text))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("stratiform").setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    # This logger reports for each batch that a collector is away; proxy.telemetry.spans reports it once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    if level in ("debug", "error"):
        logging.getLogger().setLevel(level.upper())


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of the server has information that no line of the proxy has.

    A request that still runs when the proxy must end is cancelled, and its client is told so: that needs no traceback.
    An answer that breaks off is left incomplete, so that its client can notice it. The engine logs which exchange it
    was.
    """
    if record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError):
        return False
    return record.msg != _INCOMPLETE
