"""Lines of the log: as a text, and as JSON with the same values."""

import json
import logging
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.serve import Formatter, JsonFormatter, log_to_stderr
from proxy.engine.conclusion import Line, exchange_values
from proxy.engine.exchange import ExchangeOutcome, Settlement
from proxy.protocol.response.usage import Usage
from tests.doubles import make_deployment
from tests.exchanges import make_exchange
from tests.log_setup import logging_restored

KEY = "sk-strat-0123456789abcdefghij"


def record(message: object, *arguments: object, **more: object) -> logging.LogRecord:
    fields = {"name": "stratiform", "level": logging.INFO, **more}
    found = logging.makeLogRecord({"msg": message, "args": arguments, "created": 1.5, **fields})
    found.levelname = "INFO"
    return found


def both(message: object, *arguments: object, **more: object) -> tuple[str, dict[str, object]]:
    """The text of a record, and its JSON."""
    line = JsonFormatter("%(message)s").format(record(message, *arguments, **more))
    assert line.isascii()
    assert "\n" not in line
    return Formatter("%(message)s").format(record(message, *arguments, **more)), json.loads(line)


anything = st.text() | st.sampled_from(["", "m", "a b", '"', "\r\n", "\ud83d", KEY])


@given(
    model=anything,
    code=anything,
    path=anything,
    usage=st.none() | st.builds(Usage, prompt=st.integers(0, 10**9), output=st.integers(0, 10**6)),
    cost=st.floats(0, 1e6),
    total_s=st.floats(0, 1e5),
    first_byte_s=st.none() | st.floats(0, 1e5),
    ending=st.sampled_from(ExchangeOutcome),
)
def test_json_has_the_values_of_the_text_and_no_others(
    model: str,
    code: str,
    path: str,
    usage: Usage | None,
    cost: float,
    total_s: float,
    first_byte_s: float | None,
    ending: ExchangeOutcome,
) -> None:
    exchange = make_exchange(
        "POST",
        f"/{path}",
        now=0.0,
        model=model,
        error_code=code,
        deployment=make_deployment(name=model),
        settlement=Settlement(usage, cost),
        first_byte_s=first_byte_s,
        ending=ending,
    )
    exchange.total_s = total_s
    text, found = both(Line("exchange", exchange_values(exchange)))
    about, *pairs = text.split(" ")
    told = dict(pair.split("=", 1) for pair in pairs)
    beside = {"time", "level", "logger", "message"}
    assert found["message"] == about == "exchange"
    assert found.keys() - beside == told.keys()
    for name, value in told.items():
        is_number = name.endswith(("_ms", "_bytes", "_usd")) or isinstance(found[name], int)
        assert (Decimal(str(found[name])) == Decimal(value)) if is_number else found[name] == value


def test_a_record_of_a_library_is_a_message_without_keys() -> None:
    try:
        raise ValueError(f"refused: {KEY}")
    except ValueError as error:
        trouble = (ValueError, error, error.__traceback__)
    text, found = both("call\nto %s", KEY, name="aiohttp", exc_info=trouble)
    assert found["message"] == text
    assert "Traceback" in text
    assert KEY not in text
    assert found["time"] == "1970-01-01T00:00:01.500+00:00"
    assert (found["level"], found["logger"]) == ("INFO", "aiohttp")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_configuration_says_how_lines_look(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    with logging_restored():
        log_to_stderr("info", log_format)
        logging.getLogger("stratiform").info(Line("exchange", {"id": "sx-1", "cost_usd": Decimal("0.000010")}))
        # Of an answer that was cut off, the proxy's own line says more.
        logging.getLogger("uvicorn.error").error("ASGI callable returned without completing response.")
        logging.getLogger("uvicorn.error").error("Traceback (most recent call last):\n...\nasyncio.CancelledError\n")
        logging.getLogger("uvicorn.error").info("Shutting down")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    if log_format == "json":
        assert json.loads(line)["cost_usd"] == 0.00001
    else:
        assert line.endswith(" INFO stratiform exchange id=sx-1 cost_usd=0.000010\n")
