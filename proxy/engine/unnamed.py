"""Requests that name no model, for files, batches and the like: whose deployment serves them, and what the answer says.

The client may say it by a header, the operator by ``default_model``. Where neither does, and the deployments have
several upstreams, the first one serves and the answer says that another might have been meant.
"""

from dataclasses import replace

from proxy.core.access.reach import Reach
from proxy.engine.attempts.retry import Levels
from proxy.engine.exchange import Exchange
from proxy.engine.rights import model_of_place
from proxy.engine.target import refuse_key_in_model
from proxy.ports import Models


def levels_of(models: Models, exchange: Exchange, reach: Reach) -> Levels:
    """Who may serve the exchange, whose ``model`` is then known, if only by what the client has chosen, and which says
    how that was decided. Raises UnknownModel, InvalidRequest."""
    named = exchange.requested.model or model_of_place(models, reach)
    pin = exchange.objects.pin
    model = named or (reach.chosen if pin is None else "")
    refuse_key_in_model(model, exchange)
    if model:
        if model != exchange.requested.model:
            exchange.requested = replace(exchange.requested, model=model, decided_by="" if named else "header")
        return models.levels(model)
    found = models.unnamed()
    decided_by = "object" if pin is not None else "first" if len(found) > 1 else "configuration"
    exchange.requested = replace(exchange.requested, decided_by=decided_by)
    return ((found[0],),)
