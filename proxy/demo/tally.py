"""The cost of one form of a session, as the provider reported it.

The cost of a session as the provider reported it, and the cost of the same requests under other policies.

Checks that the requests that reached the provider hold everything that a client has said, in any form.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson

from proxy.core.money.prices import Price, input_cost, uncached_cost
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass, field
from proxy.demo.sample import Message, Request, Sample
from proxy.replay.fidelity import violations
from proxy.replay.runner import Setting
from proxy.replay.totals import AS_SENT, OURS, SYSTEM_LAST, Account, Result, Total, as_sent, system_and_last

POLICIES = (AS_SENT, SYSTEM_LAST, OURS)
_BASELINES = {AS_SENT: as_sent, SYSTEM_LAST: system_and_last}


class Tally:
    """One session so far. ``usd`` is the cost of its prompts by policy, and ``uncached_usd`` is their cost without any
    cache."""

    def __init__(self, sample: Sample, setting: Setting, price: Price) -> None:
        self.sample, self.setting, self.price = sample, setting, price
        self.key, self.headers, self.sendings = f"demo-{sample.name}", dict[str, str](), sample.requests
        self.uncached_usd = 0.0
        self.requests = 0
        self._trace = sample.trace()
        self.accounts = {name: setting.account() for name in _BASELINES}
        totals = {**{name: account.total for name, account in self.accounts.items()}, OURS: Total()}
        self.result = Result(sample.name, setting.profile, len(sample.requests), totals=totals)
        self.usd = dict.fromkeys(totals, 0.0)

    def add(self, usage: Usage, sent: bytes) -> None:
        """Count the next answered request. ``usage`` is the reported usage; ``sent`` is the body that reached the
        provider."""
        step = self._trace.steps[self.requests]
        self.requests += 1
        dialect = self.setting.profile.dialect
        for name, baseline in _BASELINES.items():
            bill = self.accounts[name].send(baseline(step.body, dialect), step.at)
            if bill is None:
                raise ValueError(f"the provider refused request {self.requests} of {self.sample.name} as {name}")
            self.usd[name] += input_cost(bill, self.price)
            if name == AS_SENT:
                self.result.plain += bill.total
                self.uncached_usd += uncached_cost(bill, self.price)
        self.result.ours.add(usage)
        self.usd[OURS] += input_cost(usage, self.price)
        found = violations(step.body, sent, self.setting.recognisers, self.setting.profile.max_marks)
        self.result.violations += [f"request {self.requests}: {text}" for text in found]


@dataclass(frozen=True, slots=True)
class Sum:
    """All sessions. ``share`` is the cost of each policy as a share of no caching."""

    requests: int
    prompt_tokens: int
    tokens_read: int
    usd: dict[str, float]
    uncached_usd: float
    share: dict[str, float]
    violations: int

    def saved_usd(self, policy: str) -> float:
        """How much less the planner's requests cost than those of another policy."""
        return self.usd[policy] - self.usd[OURS]

    def saved_share(self, policy: str) -> float:
        """The saving as a share of the other policy's cost."""
        return self.saved_usd(policy) / self.usd[policy] if self.usd[policy] else 0.0


def added_up(tallies: Sequence[Tally]) -> Sum:
    """The sum over all sessions."""
    uncached = sum(tally.uncached_usd for tally in tallies)
    usd = {name: sum(tally.usd[name] for tally in tallies) for name in POLICIES}
    return Sum(
        requests=sum(tally.requests for tally in tallies),
        prompt_tokens=sum(tally.result.ours.prompt for tally in tallies),
        tokens_read=sum(tally.result.ours.read for tally in tallies),
        usd=usd,
        uncached_usd=uncached,
        share={name: cost / uncached if uncached else 1.0 for name, cost in usd.items()},
        violations=sum(len(tally.result.violations) for tally in tallies),
    )


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


_LEARNING_TURNS = 10


@dataclass(frozen=True, slots=True)
class Sending(Request):
    """One request, and the content of it that must reach the provider."""

    wanted: Wanted


@dataclass(slots=True)
class FormTally:
    """One form of a session so far. ``key`` is the client's key: each form of each session is a separate account.

    ``usd`` is the cost of its prompts, and ``uncached_usd`` is their cost without a cache. ``late`` are the bills after
    the first ten turns. ``uploaded`` is the number of bytes of the bodies that the client has sent. If ``marks`` is
    given, that account at the provider bills the same requests with markers on the system prompt and the last message,
    sent without the proxy. ``marked_usd`` is their cost.
    """

    form: StrEnum
    key: str
    sendings: Sequence[Sending]
    setting: Setting
    price: Price
    headers: Mapping[str, str] = field(default_factory=dict)
    marks: Account | None = None
    total: Total = field(default_factory=Total)
    late: Total = field(default_factory=Total)
    usd: float = 0.0
    uncached_usd: float = 0.0
    marked_usd: float = 0.0
    uploaded: int = 0
    requests: int = 0
    most_live: int = 0
    most_prompt: int = 0
    losses: list[str] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """The input cost so far, in tokens at the plain price."""
        return self.total.cost(self.setting.profile)

    @property
    def share(self) -> float | None:
        """The cost so far as a share of no caching; None before anything was sent."""
        return self.usd / self.uncached_usd if self.uncached_usd else None

    def add(self, usage: Usage, sent: bytes) -> None:
        """Count the next answered request. ``usage`` is the reported usage; ``sent`` is the body that reached the
        provider. Raises ValueError if the provider refuses the same request with plain markers."""
        sending = self.sendings[self.requests]
        wanted = sending.wanted
        self.requests += 1
        self.total.add(usage)
        if sum(message["role"] == "user" for message in wanted.conversation) > _LEARNING_TURNS:
            self.late.add(usage)
        self.usd += input_cost(usage, self.price)
        self.uncached_usd += uncached_cost(usage, self.price)
        self.most_prompt = max(self.most_prompt, usage.prompt)
        if wanted.is_frozen:
            self.most_live = max(self.most_live, wanted.live_messages(sent))
        self._upload(sending)
        self.losses += [f"request {self.requests}: {text}" for text in wanted.losses(sent)]

    def _upload(self, request: Request) -> None:
        body = {**request.body}
        raw = orjson.dumps(body | body.pop("extra_body", {}))
        self.uploaded += len(raw)
        if self.marks is None:
            return
        bill = self.marks.send(system_and_last(raw, self.setting.profile.dialect), request.at)
        if bill is None:
            raise ValueError(f"the provider refused request {self.requests} of {self.key} as {SYSTEM_LAST}")
        self.marked_usd += input_cost(bill, self.price)


def losses_of(tallies: Mapping[Any, FormTally]) -> list[str]:
    """The faults of all requests, with the form's key in front."""
    return [f"{tally.key}: {text}" for tally in tallies.values() for text in tally.losses]
