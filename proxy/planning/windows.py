"""Fits requests to the context windows of their models, and learns how a model counts its tokens.

The tokens of messages come from the planner's reader, which has counted each message once. A model may count others
than the proxy does: what providers report is compared with the proxy's count, for each model and each principal's scope
apart, so that no client's texts change what another one's requests may hold.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from proxy.aside import Aside
from proxy.core.digest import digest
from proxy.core.lru import LastUsed
from proxy.core.request.demand import demand_of
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.reader import RequestReader
from proxy.core.response.usage import Usage
from proxy.core.window.budget import Budget, budget_of
from proxy.core.window.fitted import Fitted
from proxy.core.window.fitting import FittedMessages, Terms, fitted_messages
from proxy.core.window.parts import WindowParts
from proxy.core.window.profile import CapabilityProfile
from proxy.core.window.texts import WindowTexts
from proxy.core.window.token_factor import TokenFactor
from proxy.core.wire.json_body import Unreadable, splice
from proxy.core.wire.long_text import utf8
from proxy.engine.suppress import suppress_and_log
from proxy.errors import ContextTooLong, InvalidRequest
from proxy.planning.model_facts import ModelFacts
from proxy.planning.reading_ahead import read_ahead
from proxy.ports import Deployment

_MOST_FACTORS = 4_096
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens")
_UNLIMITED = 1 << 50
_COMPONENTS: Mapping[str, str] = MappingProxyType(
    {
        "system": "system messages",
        "tools": "tools",
        "extra": "texts of the operator",
        "parts": "named parts",
        "conversation": "older messages",
        "newest": "the newest message",
    }
)


class ContextWindows:
    """Fits requests to their windows. Token counts come from the planner's reader, which remembers them."""

    def __init__(
        self, reader: RequestReader, facts: ModelFacts, texts: WindowTexts, aside: Aside | None = None
    ) -> None:
        self._reader = reader
        self._facts = facts
        self._texts = texts
        self._aside = aside or Aside()
        self._factors: LastUsed[tuple[str, str], TokenFactor] = LastUsed(_MOST_FACTORS)

    async def fitted(
        self,
        parsed: ParsedBody,
        profile: CapabilityProfile,
        parts: WindowParts | None,
        deployment: Deployment,
        *,
        extra_tokens: int = 0,
        scale: float = 1.0,
        scope: str = "",
    ) -> Fitted:
        """The request as it is sent. ``extra_tokens`` are those that are added to it later; ``scale`` makes the budget
        smaller, for a request that an upstream has refused; ``scope`` is the principal's. A body that only the proxy
        cannot read is left as it is. Raises ContextTooLong and InvalidRequest; nothing is changed by then."""
        job = _Job(profile, parts or WindowParts(), extra_tokens, scale, self._factor(deployment, scope))
        with suppress(Unreadable):
            parsed.chat()
        done: _Done | None = None
        with suppress_and_log("window.fitting"), suppress(Unreadable):
            done = await self._done(parsed, deployment, job)
        if done is None:
            return _unread(parsed, job.parts)
        if done.messages.excess_tokens:
            raise _too_long(done)
        body, messages = parsed.body, done.messages.messages
        if messages is not None:
            array = b"[" + b",".join(messages) + b"]"
            body = splice(body, parsed.members, {"messages": array}, parsed.span)
        return Fitted(body, done.messages.edits, done.sizes, done.counted_tokens)

    async def _done(self, parsed: ParsedBody, deployment: Deployment, job: "_Job") -> "_Done":
        """The request's messages, fitted; large ones beside the event loop. Raises Unreadable."""
        await read_ahead(self._reader, self._aside, parsed)
        transcript = self._reader.read(parsed)
        tools = sum(element.tokens for element in self._reader.read_tools(parsed.members.get("tools")))
        budget = self._budget(parsed, deployment, job)
        prompt = _UNLIMITED if budget is None else int(budget.prompt_tokens / job.factor)
        count = self._reader.counter.fork()
        terms = Terms(
            profile=job.profile,
            prompt_tokens=prompt,
            besides={"tools": tools, "extra": job.extra_tokens},
            texts=self._texts,
            count=lambda text: count.count(digest(utf8(text)), text),
        )
        size = len(parsed.body) + _chars(job.parts)
        messages = await self._aside.run_large(size, partial(fitted_messages, transcript, job.parts, terms))
        if budget is None and job.scale < 1.0:
            # Nobody knows the window; what was refused was too large for it.
            terms = replace(terms, prompt_tokens=int(messages.sizes.get("prompt", 0) * job.scale))
            messages = await self._aside.run_large(size, partial(fitted_messages, transcript, job.parts, terms))
        counted = 0 if transcript.has_media else messages.sizes.get("prompt", 0)
        return _Done(messages, _sizes(messages, budget, job.factor), counted)

    def _budget(self, parsed: ParsedBody, deployment: Deployment, job: "_Job") -> Budget | None:
        reads, writes = self._facts.limits(deployment)
        asked = {name: parsed.members[name] for name in _OUTPUT_LIMITS if name in parsed.members}
        demand = demand_of("POST", "/chat/completions", asked)
        wanted = demand.max_output_tokens or demand.least_output_tokens or None
        if wanted is not None and writes is not None:
            wanted = min(wanted, writes)
        budget = budget_of(job.profile, reads, wanted)
        return None if budget is None else budget.scaled(job.scale)

    def _factor(self, deployment: Deployment, scope: str) -> float:
        known = self._factors.find(_key(deployment, scope))
        return 1.0 if known is None else known.value

    def settled(self, deployment: Deployment, fitted: Fitted, usage: Usage | None, *, scope: str = "") -> None:
        """An exchange whose request was ``fitted`` has ended well: learn from what the provider has counted."""
        if usage is None or usage.estimated or not fitted.counted_tokens:
            return
        key = _key(deployment, scope)
        factor = self._factors.find(key) or TokenFactor()
        self._factors.put(key, factor)
        factor.learn(fitted.counted_tokens, usage.prompt)


@dataclass(frozen=True, slots=True)
class _Job:
    """What one request is fitted by."""

    profile: CapabilityProfile
    parts: WindowParts
    extra_tokens: int
    scale: float
    factor: float


@dataclass(frozen=True, slots=True)
class _Done:
    """What fitting has given: ``sizes`` are in tokens as the model counts them."""

    messages: FittedMessages
    sizes: Mapping[str, int]
    counted_tokens: int


def _key(deployment: Deployment, scope: str) -> tuple[str, str]:
    return scope, f"{deployment.name}/{deployment.model}"


def _chars(parts: WindowParts) -> int:
    texts = (parts.instruction, parts.selection, parts.prefix, parts.suffix, parts.summary)
    return sum(len(text) for text in texts if text) + sum(len(file.content) for file in parts.virtual_files)


def _sizes(messages: FittedMessages, budget: Budget | None, factor: float) -> dict[str, int]:
    sizes = {name: math.ceil(round(tokens * factor, 6)) for name, tokens in messages.sizes.items()}
    if budget is not None:
        sizes |= {"output": budget.output_tokens, "margin": budget.margin_tokens, "window": budget.window_tokens}
    return {name: tokens for name, tokens in sizes.items() if tokens}


def _unread(parsed: ParsedBody, parts: WindowParts) -> Fitted:
    """A request that only the proxy cannot read passes as it is, unless parts of it would be lost."""
    if parts == WindowParts(profile=parts.profile):
        return Fitted(parsed.body)
    raise InvalidRequest(
        "the messages cannot be read, so that the parts in 'stratiform.window' cannot be put into them",
        param="stratiform.window",
        code="unreadable_messages",
    )


def _too_long(done: _Done) -> ContextTooLong:
    """The refusal, in the words that clients know from OpenAI, with the sizes."""
    sizes = done.sizes
    has = ", ".join(f"{sizes[name]} in {word}" for name, word in _COMPONENTS.items() if name in sizes)
    return ContextTooLong(
        f"This model's maximum context length is {sizes.get('window', 0)} tokens. {sizes.get('output', 0)} of them are"
        f" kept for the answer and {sizes.get('margin', 0)} as a margin, and what cannot be left out of the request has"
        f" {sizes.get('prompt', 0)} tokens ({has}). Shorten the newest message, or ask for a shorter answer.",
        sizes=sizes,
    )
