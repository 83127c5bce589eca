"""Fits requests to the context windows of their models, and learns how a model counts its tokens.

Tokens are counted with the model's tokenizer (o200k, if the proxy has it), each text once. Large and new parts of a
request are read and counted beside the event loop. A token has at least one byte, so a request with fewer bytes than
the budget has tokens fits without a count. It is sent as it came, and the sizes that are logged for it are estimates. A
model may count differently from the proxy: the counts that providers report, and their refusals, are compared with the
proxy's count (``proxy.services.layout_state``).
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from proxy.engine.ports import ComposedRequest
from proxy.kit.errors import ContextTooLong, InvalidRequest
from proxy.kit.tasks import LARGE_BYTES, Aside, suppress_and_log
from proxy.kit.value import dataclass, digest, replace
from proxy.models import Deployment
from proxy.prompts.window import (
    MOST_FACTOR,
    CapabilityProfile,
    Count,
    ExactTokens,
    TokenBudget,
    TokenFactor,
    WindowParts,
    WindowTexts,
    budget_of,
)
from proxy.prompts.window.fitting import Fitted, FittedMessages, Terms, fitted_completion, fitted_messages
from proxy.protocol.request import Inset, ParsedBody, with_inset
from proxy.protocol.request.demand import demand_of
from proxy.protocol.request.element import Element
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS, Encode
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import TooMany, Unreadable, raw_text, splice, utf8
from proxy.services import ModelFacts
from proxy.services.layout_state import TokenFactors
from proxy.services.planner_port import read_ahead

_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens")
# A model reads the schemas in these members, as it reads tools.
_SCHEMAS = ("functions", "response_format")
_UNLIMITED = 1 << 50
_MOST_COUNTS = 100_000
# About 4 ms of counting. More than that is counted beside the event loop.
_LARGE_NEW_BYTES = 32 << 10
_JOINT = "\n\n"
_COMPONENTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "system": ("system messages", "shorten the system text"),
        "tools": ("tools", "send fewer or shorter tools"),
        "extra": ("texts of the operator", "tell the operator, whose texts take the room"),
        "parts": ("named parts", "shorten the selection, the instruction or the active file"),
        "conversation": ("older messages", "send fewer older messages"),
        "newest": ("the newest message", "shorten the newest message"),
        "results": ("the newest calls of tools and their results", "shorten the newest results of tools"),
    }
)


class ContextWindows:
    """Implements ``engine.ports.Windows``. Messages come from the planner's reader, which remembers them. ``encode``
    counts tokens as the model does, or as closely as possible."""

    def __init__(
        self,
        reader: RequestReader,
        encode: Encode,
        facts: ModelFacts,
        texts: WindowTexts,
        aside: Aside | None = None,
        factors: TokenFactors | None = None,
    ) -> None:
        self._reader = reader
        self._facts = facts
        self._texts = texts
        self._aside = aside or Aside()
        self._exact = ExactTokens(encode, capacity=_MOST_COUNTS)
        self._factors = factors or TokenFactors()

    async def fitted(
        self,
        parsed: ParsedBody,
        composed: ComposedRequest,
        deployment: Deployment,
        *,
        scale: float = 1.0,
        scope: str = "",
    ) -> Fitted:
        if composed.profile is None:
            return Fitted(parsed.body)
        inset = composed.inset.followed_by(deployment.reminder)
        job = _Job(composed.profile, composed.parts or WindowParts(), inset, scale, self._texts)
        with suppress(Unreadable):
            parsed.chat()
        found: FittedMessages | None = None
        with suppress_and_log("window.fitting"), suppress(Unreadable):
            found = await self._fitted(parsed, deployment, job, scope)
        if found is None:
            # Only the proxy cannot read it. It is sent as it is, unless parts of it would be lost.
            if not job.parts.has_any:
                return Fitted(parsed.body)
            raise InvalidRequest(
                "the messages cannot be read, so that the parts in 'stratiform.window' cannot be put into them",
                param="stratiform.window",
                code="unreadable_messages",
            )
        if found.excess_tokens:
            raise _too_long(found.sizes)
        body = splice(parsed.body, parsed.members, found.changes, parsed.span)
        return Fitted(body, found.edits, found.sizes, found.sent_tokens)

    async def fitted_completion(
        self,
        parsed: ParsedBody,
        profile: CapabilityProfile,
        deployment: Deployment,
        *,
        scale: float = 1.0,
        scope: str = "",
    ) -> Fitted:
        job = _Job(profile, WindowParts(), Inset(), scale, self._texts)
        budget, known = await self._budget(parsed, deployment, job, scope)
        most = _UNLIMITED if budget is None else int(budget.prompt_tokens / known.value)
        if len(parsed.body) < most:
            return Fitted(parsed.body)
        exact = self._exact.fork()
        work = partial(fitted_completion, parsed.members, profile, most, exact.of_text)
        found = await self._aside.run_large(len(parsed.body), work)
        self._exact.merge(exact)
        sizes = _sizes(found, budget, known.value)
        if found.excess_tokens:
            raise _too_long(sizes)
        return Fitted(splice(parsed.body, parsed.members, found.changes), found.edits, sizes, found.sent_tokens)

    async def _fitted(self, parsed: ParsedBody, deployment: Deployment, job: "_Job", scope: str) -> FittedMessages:
        """The request's messages, fitted, with their sizes as the model counts them. Large requests are fitted beside
        the event loop. ``sent_tokens`` is 0 if nothing can be learnt from the count. Raises Unreadable."""
        try:
            await read_ahead(self._reader, self._aside, parsed)
            transcript = self._reader.read(parsed)
        except TooMany:
            # These are more messages than are planned, but what fits of them may be few enough.
            fork = self._reader.fork()
            transcript = await self._aside.run(len(parsed.body), partial(fork.read_long, parsed))
            self._reader.merge(fork)
        tools = self._reader.tools.read(parsed.members.get("tools"))
        budget, known = await self._budget(parsed, deployment, job, scope)
        messages = await self._fitted_by(parsed, transcript, tools, job, budget, known.value)
        if messages.excess_tokens and known.is_guess:
            # The guess may leave out what might not fit, but it must not refuse a request that the model may accept.
            messages = await self._fitted_by(parsed, transcript, tools, job, budget, known.measured)
        return messages

    async def _fitted_by(
        self,
        parsed: ParsedBody,
        transcript: Transcript,
        tools: Sequence[Element],
        job: "_Job",
        budget: TokenBudget | None,
        factor: float,
    ) -> FittedMessages:
        """The messages, fitted if the model counts by this factor. Raises Unreadable."""
        prompt = _UNLIMITED if budget is None else int(budget.prompt_tokens / factor)
        is_known = job.scale >= 1.0 or budget is not None
        if is_known and _fits_for_certain(parsed, transcript, job, prompt):
            counter = self._reader.counter.fork()

            def count(text: str) -> int:
                return counter.count(digest(utf8(text)), text)

            besides = {"tools": sum(element.tokens for element in tools), "extra": _inset_tokens(job.inset, count)}
            terms = Terms(job.profile, _UNLIMITED, besides, job.texts, count)
            work = partial(fitted_messages, transcript, job.parts, terms)
            messages = replace(await self._aside.run_large(len(parsed.body) + _bytes(job), work), sent_tokens=0)
        else:
            messages = await self._counted(parsed, transcript, tools, job, prompt)
            if transcript.media_at >= 0:
                messages = replace(messages, sent_tokens=0)
        return replace(messages, sizes=_sizes(messages, budget, factor))

    async def _counted(
        self, parsed: ParsedBody, transcript: Transcript, tools: Sequence[Element], job: "_Job", prompt_tokens: int
    ) -> FittedMessages:
        """The messages of a request whose tokens are counted. Raises Unreadable."""
        known = [self._exact.known(message.digest) for message in transcript.messages]
        unknown = zip(transcript.messages, known, strict=True)
        new = _bytes(job) + sum(len(message.raw) for message, tokens in unknown if tokens is None)
        exact = self._exact.fork()
        raw_tools = parsed.members.get("tools")
        schemas = [parsed.members[name] for name in _SCHEMAS if name in parsed.members]

        def work() -> FittedMessages:
            schema_tokens = sum(exact.of_text(raw_text(bytes(raw))) for raw in schemas)
            besides = {"tools": exact.of_tools(raw_tools, tools) + schema_tokens}
            return _counted_messages(transcript, known, besides, job, prompt_tokens, exact)

        size = len(parsed.body) + _bytes(job)
        is_large = any(len(raw) >= _LARGE_NEW_BYTES for raw in (raw_tools or b"", *schemas))
        if new >= _LARGE_NEW_BYTES or size >= LARGE_BYTES or is_large:
            messages = await self._aside.run(max(new, size), work)
        else:
            messages = work()
        self._exact.merge(exact)
        return messages

    async def _budget(
        self, parsed: ParsedBody, deployment: Deployment, job: "_Job", scope: str
    ) -> tuple[TokenBudget | None, TokenFactor]:
        """The request's budget, and the factor by which the model counts. If the request may not fit, the store is
        asked for the factor."""
        reads, writes = self._facts.limits(deployment)
        asked = {name: parsed.members[name] for name in _OUTPUT_LIMITS if name in parsed.members}
        demand = demand_of("POST", "/chat/completions", asked)
        wanted = demand.max_output_tokens or demand.least_output_tokens or None
        if wanted is not None and writes is not None:
            wanted = min(wanted, writes)
        budget = budget_of(job.profile, reads, wanted)
        size = len(parsed.body) + _bytes(job)
        is_near = budget is not None and size * MOST_FACTOR >= budget.prompt_tokens
        known = await self._factors.known(deployment, scope, size if is_near else 0)
        return None if budget is None else budget.scaled(job.scale), known

    def settled(self, deployment: Deployment, fitted: Fitted, usage: Usage | None, *, scope: str = "") -> None:
        if usage is None or usage.estimated or not fitted.counted_tokens:
            return
        self._factors.teach(deployment, scope, lambda factor: factor.learn(fitted.counted_tokens, usage.prompt))

    def refused(self, deployment: Deployment, fitted: Fitted, tokens: int | None, *, scope: str = "") -> None:
        self._factors.teach(deployment, scope, lambda factor: factor.refused(fitted.counted_tokens, tokens))


@dataclass(frozen=True, slots=True)
class _Job:
    """The values by which one request is fitted."""

    profile: CapabilityProfile
    parts: WindowParts
    inset: Inset
    scale: float
    texts: WindowTexts


def _counted_messages(
    transcript: Transcript,
    known: Sequence[int | None],
    besides: Mapping[str, int],
    job: _Job,
    prompt_tokens: int,
    exact: ExactTokens,
) -> FittedMessages:
    """The fitted messages of a request. Some of its messages have ``known`` tokens. Raises Unreadable."""

    def recount(raw: bytes, is_newest: bool) -> int:
        return exact.of_written(with_inset(raw, job.inset) if is_newest else raw)

    pairs = zip(transcript.messages, known, strict=True)
    terms = Terms(
        job.profile,
        prompt_tokens,
        {**besides, "extra": _inset_tokens(job.inset, exact.of_text)},
        job.texts,
        exact.of_text,
        [exact.of_message(message) if tokens is None else tokens for message, tokens in pairs],
        recount,
    )
    messages = fitted_messages(transcript, job.parts, terms)
    if prompt_tokens == _UNLIMITED and job.scale < 1.0:
        # The window is unknown, but the refused request was too large for it.
        messages = fitted_messages(
            transcript, job.parts, replace(terms, prompt_tokens=int(messages.sent_tokens * job.scale))
        )
    return messages


def _fits_for_certain(parsed: ParsedBody, transcript: Transcript, job: _Job, prompt_tokens: int) -> bool:
    """Whether the bytes alone show that the request fits. A token has at least one byte, and the JSON of a text has no
    fewer bytes than the text. The JSON around a message has more bytes than the message has tokens besides its texts.
    Documents are counted instead: they are written into JSON here, and may become longer by that."""
    most = job.profile.tail_messages
    if job.parts.virtual_files or (most is not None and len(transcript.messages) - transcript.preamble > most):
        return False
    words = (*job.texts.above.values(), job.texts.summary_ok)
    framing = sum(len(utf8(text)) + len(_JOINT) + MESSAGE_OVERHEAD_TOKENS for text in words)
    tokens = len(parsed.body) + _bytes(job) + framing
    return tokens + IMAGE_TOKENS * sum(message.media for message in transcript.messages) < prompt_tokens


def _bytes(job: _Job) -> int:
    """The bytes of all texts that are put into the messages, in UTF-8."""
    parts, inset = job.parts, job.inset
    texts = (*parts.texts.values(), inset.before, inset.after)
    files = sum(len(utf8(file.content)) + len(utf8(file.id)) for file in parts.virtual_files or ())
    return files + sum(len(utf8(text)) + len(_JOINT) for text in texts if text)


def _inset_tokens(inset: Inset, count: Count) -> int:
    """The tokens of the operator's texts around a message, with the blank lines between."""
    before = count(inset.before + _JOINT) if inset.before else 0
    return before + (count(_JOINT + inset.after) if inset.after else 0)


def _sizes(messages: FittedMessages, budget: TokenBudget | None, factor: float) -> dict[str, int]:
    sizes = {name: math.ceil(round(tokens * factor, 6)) for name, tokens in messages.sizes.items()}
    if budget is not None:
        sizes |= {"output": budget.output_tokens, "margin": budget.margin_tokens, "window": budget.window_tokens}
    return {name: tokens for name, tokens in sizes.items() if tokens}


def _too_long(sizes: Mapping[str, int]) -> ContextTooLong:
    """The refusal with the sizes, in the words that clients know from OpenAI."""
    has = ", ".join(f"{sizes[name]} in {words}" for name, (words, _) in _COMPONENTS.items() if name in sizes)
    advice = _COMPONENTS[max(_COMPONENTS, key=lambda name: sizes.get(name, 0))][1]
    return ContextTooLong(
        f"This model's maximum context length is {sizes.get('window', 0)} tokens. {sizes.get('output', 0)} of them are"
        f" kept for the answer and {sizes.get('margin', 0)} as a margin, and what cannot be left out of the request has"
        f" {sizes.get('prompt', 0)} tokens ({has}). {advice.capitalize()}, or ask for a shorter answer.",
        sizes=sizes,
    )
