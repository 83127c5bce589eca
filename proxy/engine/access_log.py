"""The log line of an exchange: named values on one line, without prompt text and without keys."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial

from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.secrets.redaction import without_keys
from proxy.core.value import dataclass
from proxy.engine.exchange import Exchange
from proxy.engine.target import decoded

_UNSAFE = re.compile(r"[^\w.:/@+*-]", re.ASCII)
# A retrieved document is identified by the attributes of its tag.
_ATTRIBUTE = re.compile(r"""\s?([\w.:-]{1,64})=["']([^"']*)["']""")
_MAX_CHARS = 120
# A key that begins in the shown part of a text and ends after it must still be recognised as a key.
_READ_CHARS = 1024


Value = str | int | Decimal


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the log: its subject (``about``) and named values. As text, it is ``about name=value ...``. A JSON log
    has a member for each of these values."""

    about: str
    values: Mapping[str, Value]

    def __str__(self) -> str:
        return " ".join((self.about, *(f"{name}={value}" for name, value in self.values.items())))


def exchange_line(exchange: Exchange) -> Line:
    """The log line about the result of an exchange."""
    return Line("exchange", exchange_values(exchange))


def exchange_values(exchange: Exchange) -> dict[str, Value]:
    """The result of an exchange, by the names that logs and spans use. Empty values are left out. Texts that a client
    chose are cut and made safe."""
    arrival, answer, planned, settled = exchange.arrival, exchange.answer, exchange.planned, exchange.settlement
    safe = partial(shown, keys=arrival.keys)
    found: dict[str, Value | None] = {
        "id": arrival.id,
        "request_id": arrival.named,
        "method": safe(arrival.method),
        "path": safe(arrival.path),
        "model": safe(exchange.requested.model),
        "deployment": safe(exchange.deployment.name) if exchange.deployment else "",
        "team": safe(exchange.principal.team) if exchange.principal else "",
        "status": answer.status,
        "ending": exchange.ending,
        "error": safe(answer.error_code),
        "mode": planned.mode.name.lower(),
        "reason": planned.reason,
        "edits": ",".join(planned.plan.edits) if planned.plan is not None else "",
        "stream": int(exchange.requested.stream),
        "attempts": exchange.attempts,
        "in_bytes": arrival.size,
        "out_bytes": answer.sent_bytes,
        "overhead_ms": _ms(exchange.overhead_s),
        "first_byte_ms": None if answer.first_byte_s is None else _ms(answer.first_byte_s),
        "total_ms": _ms(exchange.total_s),
    }
    if settled is not None and (usage := settled.usage) is not None:
        found |= {
            "prompt": usage.prompt,
            "read": usage.read,
            "write": usage.write,
            "output": usage.output,
            "estimated": int(usage.estimated),
            "cost_usd": Decimal(f"{settled.cost_usd:.6f}"),
        }
    cause = answer.outcome.cache_cause
    found |= {"cache": planned.result.deviation, "cause": "" if cause == UNTOLD else cause}
    if (broke := planned.result.broke) is not None:
        found |= {
            "break": broke.kind,
            "culprit": shown_piece(f"{broke.culprit_kind}:{broke.culprit}", arrival.keys) if broke.culprit else "",
            "line": broke.line or "",
            "lost": broke.lost,
            "break_usd": Decimal(f"{broke.usd:.6f}"),
        }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def shown(text: str, keys: Sequence[str] = ()) -> str:
    """A text that a client chose, made safe: it cannot forge a log line, and it shows no key that was put into the
    wrong place, in any encoding."""
    read = text[:_READ_CHARS]
    plain = decoded(read)
    safe = without_keys(plain, keys)
    return _UNSAFE.sub("?", (read if safe == plain else safe)[:_MAX_CHARS])


def shown_piece(key: str, keys: Sequence[str] = ()) -> str:
    """The key of a piece, made safe in the same way, with its attributes as ``name:value/name:value``."""
    return shown(_ATTRIBUTE.sub(r"\1:\2/", key[:_READ_CHARS]).replace("/:", ":"), keys)


def _ms(seconds: float) -> Decimal:
    return Decimal(f"{seconds * 1000:.2f}")
