"""Asks providers why prompts were not read from their caches, on the paths where providers answer this question. Also
diagnoses those requests itself (``stratiform.ask_provider_for_cause``).

The provider's reply to a question that only the proxy asked is removed from the answer. A provider that refuses the
question gets the request without it, and is not asked for an hour.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import orjson

from proxy.core.diagnosis.diagnose import Continued, Conversations, Exchanged
from proxy.core.diagnosis.record import is_continuation, wire_record
from proxy.core.money.prices import Price
from proxy.core.providers import PROFILES, fitted
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.tokens import bytes_over_four, quick
from proxy.core.response.outcome import QUESTIONS
from proxy.core.wire.json_body import MOST_ELEMENTS, TooMany
from proxy.engine.attempts import QuestionOptOut
from proxy.engine.exchange import Exchange, Inquiry
from proxy.ports import Deployment, Transport
from proxy.tasks import Aside, suppress_and_log, work_in

MOST_ASKED_BYTES = 512
"""The most bytes that the question adds to a request. An id of another form is not sent back."""
_ID = re.compile(r"[\w.:-]{1,256}", re.ASCII)


class Inquiries:
    """The conversations of all clients. ``price_of`` returns the price of a deployment's tokens, or None if it is not
    known. ``memory_bytes``: the room for the conversations."""

    def __init__(
        self, price_of: Callable[[Deployment], Price | None], aside: Aside, memory_bytes: int = 64 << 20
    ) -> None:
        self._price_of, self._aside = price_of, aside
        self._conversations = Conversations(memory_bytes)
        self._refused = QuestionOptOut()

    async def open(self, exchange: Exchange, parsed: ParsedBody | None) -> Inquiry | None:
        """The inquiry for a request that its provider may be asked about. None for any other request."""
        question = QUESTIONS.get(exchange.parsed.text)
        if question is None or parsed is None or not exchange.asks_model:
            return None
        scope, at = exchange.admitted.scope + exchange.parsed.text, exchange.arrival.now
        found = None
        with suppress_and_log("inquiries.open"):
            found = await self._aside.run_large(work_in(parsed.body), self._read, parsed.body, scope, at)
        return None if found is None else Inquiry(question, scope, parsed, found)

    def _read(self, body: bytes, scope: str, at: float) -> Continued | None:
        try:
            read = orjson.loads(body)
            record = wire_record(read, quick(bytes_over_four), at=at, most=MOST_ELEMENTS)
        except (ValueError, RecursionError, TooMany):
            return None
        parent = read.get("previous_response_id") if is_continuation(read) else ""
        return self._conversations.find(scope, record, parent if isinstance(parent, str) else "")

    def changes(self, inquiry: Inquiry | None, deployment: Deployment) -> Mapping[str, bytes]:
        """The members that put the question to the provider that is called next. Empty if it cannot be asked, or if the
        client asks itself."""
        if inquiry is None:
            return {}
        inquiry.asks, question = False, inquiry.question
        is_called = deployment.transport is Transport.HTTP and deployment.server == question.server
        # OpenAI refuses the field for models with the older cache rules.
        may_ask = is_called and (question.from_first or deployment.profile.name == question.profile)
        if inquiry.is_refused or not may_ask or deployment in self._refused:
            return {}
        changes = question.changes(inquiry.parsed.members, inquiry.continued.previous(deployment.id))
        inquiry.asks = bool(changes)
        return changes

    def refused(self, deployment: Deployment) -> None:
        """The deployment accepts without the question a request that it refused with the question."""
        self._refused.add(deployment)

    def learn(self, exchange: Exchange, inquiry: Inquiry) -> None:
        """The provider accepted the request. Record what broke its cache, and add the exchange to the conversation."""
        deployment, outcome, found = exchange.deployment, exchange.answer.outcome, inquiry.continued
        if deployment is None:
            return
        # The rules of the cache may differ from those of chats, for which the same deployment may have no cache.
        profile, usage, rules = deployment.profile, outcome.usage, inquiry.question.profile
        if profile.name != rules:
            profile = fitted(PROFILES[rules], deployment.model)
        broke = None
        if found.comparison is not None:
            broke = found.comparison.diagnosed(usage, profile, self._price_of(deployment))
        if broke is not None and broke.lost:
            exchange.planned.result = replace(exchange.planned.result, broke=broke)
        name = outcome.said.id if outcome.said is not None and _ID.fullmatch(outcome.said.id) else ""
        said = Exchanged(found.record.answered(usage, profile), name, deployment.id)
        self._conversations.add(inquiry.scope, found, said)
