"""The log line of an exchange: key=value, one line, no prompt text and no key."""

import re

from proxy.exchange import Exchange

_UNSAFE = re.compile(r"[^\w.:/@+*-]", re.ASCII)
_KEY = re.compile(r"(sk-[\w-]{0,4})[\w-]*")
_MAX_CHARS = 120


def exchange_line(exchange: Exchange) -> str:
    """What became of an exchange, in one line. Whatever a client chose is cut and made safe."""
    usage = exchange.usage
    parts: list[tuple[str, object]] = [
        ("id", exchange.id),
        ("method", _safe(exchange.method)),
        ("path", _safe(exchange.path)),
        ("model", _safe(exchange.model)),
        ("deployment", _safe(exchange.deployment.name) if exchange.deployment else ""),
        ("team", _safe(exchange.subject.team) if exchange.subject else ""),
        ("status", exchange.status),
        ("ending", exchange.ending or ""),
        ("error", _safe(exchange.error_code)),
        ("mode", exchange.mode.name.lower()),
        ("reason", exchange.reason),
        ("stream", int(exchange.stream)),
        ("retried", int(exchange.was_retried)),
        ("in_bytes", exchange.request_bytes),
        ("out_bytes", exchange.answer_bytes),
        ("overhead_ms", _ms(exchange.overhead_s)),
        ("first_byte_ms", "" if exchange.first_byte_s is None else _ms(exchange.first_byte_s)),
        ("total_ms", _ms(exchange.total_s)),
    ]
    if usage is not None:
        parts += [
            ("prompt", usage.prompt),
            ("read", usage.read),
            ("write", usage.write),
            ("output", usage.output),
            ("estimated", int(usage.estimated)),
            ("cost_usd", f"{exchange.cost_usd:.6f}"),
        ]
    if exchange.plan is not None and exchange.plan.deviation:
        parts += [("cache", exchange.plan.deviation), ("cause", exchange.cache_cause)]
    return "exchange " + " ".join(f"{name}={value}" for name, value in parts if value != "")


def _safe(text: str) -> str:
    shown = _UNSAFE.sub("?", text[:_MAX_CHARS])
    # A client may have put its key into the wrong field.
    return _KEY.sub(r"\1...", shown) if "sk-" in shown else shown


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"
