"""Requests whose address names the model, as Azure's do: that name counts, whatever the body says of a model.

The body is given the name before anything else is read of it, so that rights, budgets and plans hold by it as they hold
by a name that a client has written into the body itself.
"""

from collections.abc import Callable

import orjson

from proxy.core.access.unambiguous import CheckedBody, unambiguous
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.routing_fields import head_of
from proxy.core.wire.json_body import splice
from proxy.core.wire.scan import replaced
from proxy.engine.exchange import Exchange
from proxy.errors import InvalidRequest


def addressed(reading: CheckedBody, model: str, parse: Callable[[bytes], ParsedBody]) -> CheckedBody:
    """The request with this model in its body, in the place of any other; as it came where ``model`` is empty."""
    if not model or reading.head.model == model:
        return reading
    parsed, name = reading.head.parsed, orjson.dumps(model)
    if parsed is None:
        body = replaced(reading.body, "model", name)
    else:
        body = splice(reading.body, parsed.members, {"model": name}, parsed.span)
    return unambiguous(body, head_of(body, parse))


def check_addressed(exchange: Exchange) -> None:
    """Raises InvalidRequest for a body that does not ask for the model that the address names: a form, or one that
    cannot be taken apart."""
    if exchange.arrival.addressed and exchange.requested.model != exchange.arrival.addressed:
        raise InvalidRequest(
            "The path names a model, and the body cannot be given it: write the same name into its 'model', and send "
            "JSON uncompressed.",
            param="model",
            code="model_mismatch",
        )
