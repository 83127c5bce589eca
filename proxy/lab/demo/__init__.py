"""Makes sample sessions for ``stratiform demo``, and sends them.

All content is made here, and it is always the same. ``chats`` and ``tool_agent`` are the clients, and ``tool_agent``
writes the code that they see. ``structured`` and ``panels`` make sessions that are sent in several forms.

A sample session (``Sample``) has the requests that a client would send, with their times. The client that sends them is
like any other: the real ``openai`` SDK, pointed at the proxy by its base URL (``usages``). ``RequestRecorder``
remembers the requests that reached the provider, so that the demo can compare them with the client's requests.

``Wanted`` is the content that must reach the provider, in any form. A ``Tally`` adds up the answers to one session in
one form. It bills the same requests under other policies, too, each against an account of its own at the provider.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import orjson
from openai import AsyncOpenAI
from rich.table import Column, Table

from proxy.engine.exchange import Call
from proxy.engine.headers import get
from proxy.engine.ports import Answer, Upstream
from proxy.kit.clock import TIME_HEADER
from proxy.kit.value import dataclass, field
from proxy.lab import Step, Trace
from proxy.lab.replay import AS_SENT, BASELINES, OURS, SYSTEM_LAST, Account, Setting, Total
from proxy.lab.replay.fidelity import violations
from proxy.protocol.prices import Price, input_cost, uncached_cost
from proxy.protocol.response.usage import Parts, Usage, usage_of

MODEL = "claude-sonnet-4-5"
# 2026-11-21 09:00:00 UTC: the sessions' own time, so that minutes between turns pass at once.
BEGIN = 1_795_251_600.0

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """One request. ``body`` is in the form in which a client gives it to its SDK. ``at`` is in unix seconds of the
    session's own time."""

    at: float
    body: dict[str, Any]

    @property
    def raw(self) -> bytes:
        """The body as the SDK sends it."""
        members = {name: value for name, value in self.body.items() if name != "extra_body"}
        return orjson.dumps(members | self.body.get("extra_body", {}))


@dataclass(frozen=True, slots=True)
class Sample:
    """A session with a name, and a short description of the kind of client."""

    name: str
    client: str
    requests: Sequence[DemoRequest]

    def trace(self) -> Trace:
        """The session in the form of a recorded one."""
        return Trace(self.name, [Step(request.at, self.name, request.raw) for request in self.requests])


def system(text: str) -> Message:
    """A system message."""
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    """A user's message."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """A model's message."""
    return {"role": "assistant", "content": text}


def chat(messages: Sequence[Message], *, stream: bool, **options: Any) -> dict[str, Any]:
    """A request's body. A stream asks for its usage, so that the demo can show what the provider reported."""
    body = {"model": MODEL, "messages": list(messages), **options}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


class RequestRecorder:
    """An upstream in front of another one. ``bodies`` are the request bodies that arrived, by key, in their order."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner
        self.bodies: dict[str, list[bytes]] = {}

    async def open(self, call: Call) -> Answer:
        """Note the body and pass the call on."""
        if isinstance(call.body, bytes):
            key = (get(call.headers, "authorization") or "").removeprefix("Bearer ")
            self.bodies.setdefault(key, []).append(call.body)
        return await self._inner.open(call)

    async def aclose(self) -> None:
        """Close the other upstream."""
        await self._inner.aclose()


_TIMEOUT_S = 30.0


async def usages(
    base_url: str, key: str, requests: Iterable[DemoRequest], headers: Mapping[str, str]
) -> AsyncIterator[Usage]:
    """Send one session, and yield the usage that each answer reports. Each session has its own key, so that the proxy
    and the provider keep the sessions apart. ``headers`` go with every request. Raises openai.OpenAIError."""
    async with AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=_TIMEOUT_S) as client:
        for request in requests:
            timed = {**headers, TIME_HEADER: f"{request.at:.3f}"}
            answer = await client.chat.completions.create(**request.body, extra_headers=timed)
            report = answer.usage if not request.body.get("stream") else None
            if request.body.get("stream"):
                async for chunk in answer:
                    report = chunk.usage or report
            usage = usage_of({"usage": report.model_dump()}) if report is not None else None
            if usage is None:
                raise ValueError("an answer came without usage")
            yield usage


POLICIES = (AS_SENT, SYSTEM_LAST, OURS)
_LEARNING_TURNS = 10
_PANEL_CALL = "panel_"
# Shorter texts may be part of others by chance.
_DISTINCT_CHARS = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """The content that must reach the provider: the ``conversation`` in its order, and each of the ``contents``, by
    name, once. The ``hidden`` texts must not reach it. ``is_frozen``: old messages of the conversation may be text in a
    panel."""

    conversation: Sequence[Message]
    contents: Mapping[str, str]
    hidden: Mapping[str, str] = field(default_factory=dict)
    is_frozen: bool = False

    def losses(self, sent: bytes) -> list[str]:
        """The parts that are missing in a request, are there twice, or are out of order; empty if all is well."""
        messages = orjson.loads(sent)["messages"]
        said, wanted = list(map(_said, messages)), list(map(_said, self.conversation))
        texts = [_text(message) for message, one in zip(messages, said, strict=True) if one not in wanted]
        found = [*self._contents("\n".join(texts)), *_parted(messages)]
        if self.is_frozen:
            return [*found, *_in_order(list(map(_text, self.conversation)), "\n".join(map(_text, messages)))]
        lost = list(_in_order(wanted, said))
        is_prompt_last = self.conversation[-1]["role"] != "user" or bool(list(_in_order(wanted, said[:-1])))
        return [*found, *lost] if lost or is_prompt_last else [*found, "something stands behind the prompt"]

    def live_messages(self, sent: bytes) -> int:
        """How many messages of the conversation are in a request as messages, and not in a frozen part."""
        said = set(map(_said, orjson.loads(sent)["messages"]))
        return sum(_said(message) in said for message in self.conversation)

    def _contents(self, whole: str) -> Iterator[str]:
        for name, text in self.contents.items():
            times = whole.count(text if text.strip() else f"{name}\n")
            if not times:
                yield f"{name} is missing"
            elif times > 1 and len(text) >= _DISTINCT_CHARS and times > self._times_in(text):
                yield f"{name} stands there {times} times"
        for name, text in self.hidden.items():
            if len(text) >= _DISTINCT_CHARS and text in whole and not self._times_in(text):
                yield f"{name} is not selected, and stands there in full"

    def _times_in(self, text: str) -> int:
        """How often a text occurs in the contents: files may be equal, or one may contain another."""
        return sum(other.count(text) for other in self.contents.values())


def _in_order(wanted: Sequence[str], said: Sequence[str]) -> Iterator[str]:
    """The first message that did not arrive after the messages before it, neither as a message nor within their
    text."""
    at = 0
    for number, one in enumerate(wanted, 1):
        try:
            at = said.index(one, at) + (len(one) if isinstance(said, str) else 1)
        except ValueError:
            yield f"message {number} of the conversation is missing, or out of order"
            return


def _parted(messages: Sequence[Message]) -> Iterator[str]:
    """Panel calls whose result does not follow at once."""
    for message, behind in zip(messages, [*messages[1:], {}], strict=True):
        for call in message.get("tool_calls") or []:
            if call["id"].startswith(_PANEL_CALL) and behind.get("tool_call_id") != call["id"]:
                yield f"{call['id']} and its result are parted"


def _said(message: Message) -> str:
    """A message without markers, in one form."""
    known = {key: message[key] for key in ("role", "tool_calls", "tool_call_id") if message.get(key)}
    return orjson.dumps({**known, "content": _text(message)}, option=orjson.OPT_SORT_KEYS).decode()


def _text(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@dataclass(frozen=True, slots=True)
class Sending(DemoRequest):
    """One request, and the content of it that must reach the provider."""

    wanted: Wanted


@dataclass(slots=True, kw_only=True)
class DemoCosts:
    """The cost of answered requests. ``ours`` are the bills that the provider reported. ``usd`` is the cost of the
    prompts by policy, and ``uncached_usd`` is their cost without any cache. ``losses`` are the faults of the requests
    that reached the provider."""

    requests: int = 0
    ours: Total = field(default_factory=Total)
    usd: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    uncached_usd: float = 0.0
    losses: list[str] = field(default_factory=list)

    def share(self, policy: str = OURS) -> float:
        """The cost as a share of no caching."""
        return self.usd[policy] / self.uncached_usd if self.uncached_usd else 1.0

    def saved_usd(self, policy: str) -> float:
        """How much less the planner's requests cost than those of another policy."""
        return self.usd[policy] - self.usd[OURS]

    def saved_share(self, policy: str) -> float:
        """The saving as a share of the other policy's cost."""
        return self.saved_usd(policy) / self.usd[policy] if self.usd[policy] else 0.0


@dataclass(slots=True)
class Tally(DemoCosts):
    """One session so far, in one form, whose description is ``words``. Each form of each session has a key of its own,
    and so a separate account at the provider.

    ``accounts`` bill the same requests under other policies, sent without the proxy. If there is one for the requests
    as sent, it says what they cost without a cache; else the provider's reports do. ``late`` are the bills after the
    first ten turns. ``uploaded`` is the number of bytes of the bodies that the client has sent. ``most_live`` is the
    most messages that followed the frozen ones, and ``most_prompt`` is the size of the longest prompt.
    """

    name: str
    words: str
    sendings: Sequence[DemoRequest]
    setting: Setting
    price: Price
    headers: Mapping[str, str] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    late: Total = field(default_factory=Total)
    uploaded: int = 0
    most_live: int = 0
    most_prompt: int = 0

    @classmethod
    def of(cls, sample: Sample, setting: Setting, price: Price) -> Self:
        """A sample session, before anything is sent."""
        accounts = {policy: setting.account() for policy in (AS_SENT, SYSTEM_LAST)}
        return cls(sample.name, sample.client, sample.requests, setting, price, accounts=accounts)

    @property
    def key(self) -> str:
        """The client's key."""
        return f"demo-{self.name}"

    def add(self, usage: Usage, sent: bytes) -> None:
        """Count the next answered request. ``usage`` is the reported usage; ``sent`` is the body that reached the
        provider. Raises ValueError if the provider refuses the same request under another policy."""
        sending, bills = self.sendings[self.requests], dict[str, Parts]()
        self.requests += 1
        for policy, account in self.accounts.items():
            bill = account.send(BASELINES[policy](sending.raw, self.setting.profile.dialect), sending.at)
            if bill is None:
                raise ValueError(f"the provider refused request {self.requests} of {self.key} as {policy}")
            bills[policy] = bill
        self.uncached_usd += uncached_cost(bills.get(AS_SENT, usage), self.price)
        for policy, parts in {**bills, OURS: usage}.items():
            self.usd[policy] += input_cost(parts, self.price)
        self.ours.add(usage)
        self.uploaded += len(sending.raw)
        self.most_prompt = max(self.most_prompt, usage.prompt)
        self.losses += [f"{self.key}: request {self.requests}: {text}" for text in self._judged(sending, usage, sent)]

    def _judged(self, sending: DemoRequest, usage: Usage, sent: bytes) -> list[str]:
        """The faults of a request that reached the provider."""
        if not isinstance(sending, Sending):
            return violations(sending.raw, sent, self.setting.recognisers, self.setting.profile.max_marks)
        wanted = sending.wanted
        if sum(message["role"] == "user" for message in wanted.conversation) > _LEARNING_TURNS:
            self.late.add(usage)
        if wanted.is_frozen:
            self.most_live = max(self.most_live, wanted.live_messages(sent))
        return wanted.losses(sent)


def added_up(tallies: Iterable[Tally]) -> DemoCosts:
    """The sum over several sessions."""
    total = DemoCosts()
    for tally in tallies:
        total.requests += tally.requests
        total.ours.add(tally.ours)
        total.uncached_usd += tally.uncached_usd
        total.losses += tally.losses
        for policy, usd in tally.usd.items():
            total.usd[policy] += usd
    return total


def shown_table(title: str, columns: Sequence[str]) -> Table:
    """A table without rows: the column of the forms' names, then these columns."""
    numbers = (Column(name, justify="right", no_wrap=True) for name in columns)
    return Table(" ", *numbers, box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
