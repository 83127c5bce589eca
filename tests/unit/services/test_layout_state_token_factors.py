"""How models count is learnt from answers and refusals, and known to other workers and after a restart."""

import asyncio
import json
import math
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.ports import ComposedRequest
from proxy.models import Deployment, Transport
from proxy.prompts.window import MOST_FACTOR, Capability, CapabilityProfile
from proxy.prompts.window.fitting import Fitted
from proxy.protocol.providers import OPENAI
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.services import ModelFacts
from proxy.services.layout_state import SharedLayoutStore, TokenFactors
from proxy.services.windows import ContextWindows
from proxy.storage.sqlite import MemoryStore
from tests.examples import examples
from tests.talk import assistant, user
from tests.windows import TEXTS, Body, text_of, tokens_of

NOW = 1_700_000_000.0
DEPLOYMENT = Deployment("m", "m", Transport.EMBEDDED, OPENAI, id="m")
WINDOW, OUTPUT = 8_000, 500
PROFILE = CapabilityProfile("chat", Capability.CHAT, window_tokens=WINDOW, output_tokens=OUTPUT, margin_tokens=100)


class Worker:
    """One process: what it knows itself, and what it shares."""

    def __init__(self, store: MemoryStore, *, is_shared: bool = True) -> None:
        self.state = SharedLayoutStore(store, lambda what: None, is_shared=is_shared)
        self.factors = TokenFactors(self.state, lambda: NOW)
        self.reader = RequestReader(bytes_over_four, (), 1 << 22)
        self.windows = ContextWindows(self.reader, bytes_over_four, ModelFacts(), TEXTS, None, self.factors)

    async def fitted(self, messages: list[Body], scope: str = "one") -> Fitted:
        body = json.dumps({"model": "m", "messages": messages}).encode()
        composed = ComposedRequest(profile=PROFILE)
        return await self.windows.fitted(self.reader.parse(body), composed, DEPLOYMENT, scope=scope)


@dataclass
class Model:
    """A model at an upstream, whose tokenizer counts so many times the proxy's tokens, and what it has refused."""

    ratio: float
    names_tokens: bool
    refused: int = 0
    refused_again: int = 0
    sent: list[int] = field(default_factory=list)

    def count(self, fitted: Fitted) -> int:
        return math.ceil(self.ratio * tokens_of(json.loads(fitted.body)["messages"]))

    async def ask(self, worker: Worker, messages: list[Body], scope: str = "one") -> None:
        """One request as the engine sends it: a refusal teaches, and one smaller try follows."""
        fitted = await worker.fitted(messages, scope)
        if (tokens := self.count(fitted)) + OUTPUT > WINDOW:
            self.refused += 1
            named = tokens if self.names_tokens else None
            worker.windows.refused(DEPLOYMENT, fitted, named, scope=scope)
            fitted = await worker.fitted(messages, scope)
            if (tokens := self.count(fitted)) + OUTPUT > WINDOW:
                self.refused_again += 1
                return
        self.sent.append(tokens)
        worker.windows.settled(DEPLOYMENT, fitted, Usage(tokens, 1), scope=scope)
        for _ in range(20):  # what was learnt is written
            await asyncio.sleep(0)


@st.composite
def clients(draw: st.DrawFn) -> list[tuple[int, int, bool, str]]:
    """Requests: the tokens of the turn that is new, which worker gets it, whether all are restarted, and whose it is.
    A client may come back with a long conversation at once."""
    first = draw(st.sampled_from([100, 3_000, 20_000]))
    sizes = [first, *draw(st.lists(st.integers(20, 1_500), min_size=10, max_size=40))]
    scopes = draw(st.sampled_from([("one",), ("one", "two")]))
    return [
        (size, draw(st.integers(0, 1)), draw(st.integers(0, 9)) == 0, draw(st.sampled_from(scopes))) for size in sizes
    ]


@settings(max_examples=examples(150))
@given(st.floats(0.7, 2.0), st.booleans(), clients())
def test_after_one_refusal_no_request_is_overrun_whatever_the_tokenizer(
    ratio: float, names_tokens: bool, requests: list[tuple[int, int, bool, str]]
) -> None:
    async def main() -> Model:
        store, model = MemoryStore(), Model(ratio, names_tokens)
        workers, messages = [Worker(store), Worker(store)], list[Body]()
        for number, (size, at, restarts, scope) in enumerate(requests):
            if restarts:
                for worker in workers:
                    await worker.state.aclose()
                workers = [Worker(store), Worker(store)]
            for part in range(0, size, 1_000):
                messages.append(user(text_of(min(1_000, size - part), f"q{number}.{part}")))
                messages.append(assistant(text_of(20, f"a{number}.{part}")))
            await model.ask(workers[at], [*messages, user("now?")], scope)
        for worker in workers:
            await worker.state.aclose()
        return model

    model = asyncio.run(main())
    assert model.refused <= 1
    assert model.refused_again == 0
    if sum(size for size, *_ in requests) * ratio > 2 * WINDOW:
        # Nothing is left out in vain: the window is used.
        assert max(model.sent) > 0.5 * (WINDOW - OUTPUT)


def talk(tokens: int) -> list[Body]:
    """A conversation of so many tokens, and a question."""
    turns = [turn for n in range(tokens // 500) for turn in (user(text_of(250, f"q{n}")), assistant(text_of(250)))]
    return [*turns, user("now?")]


async def test_a_guess_leaves_out_and_never_refuses() -> None:
    worker = Worker(MemoryStore())
    fitted = await worker.fitted(talk(7_000))
    worker.windows.refused(DEPLOYMENT, fitted, None, scope="one")
    assert (await worker.fitted(talk(7_000))).counted_tokens * MOST_FACTOR <= WINDOW - OUTPUT
    # The newest message alone is more than the guess allows: the model is asked all the same.
    large = [user(text_of(5_000))]
    assert (await worker.fitted(large)).counted_tokens > 5_000


async def test_a_scope_begins_with_what_others_taught_and_then_goes_by_its_own() -> None:
    worker = Worker(MemoryStore())

    def settle(scope: str, tokens: int) -> None:
        worker.windows.settled(DEPLOYMENT, Fitted(b"", counted_tokens=10_000), Usage(tokens, 1), scope=scope)

    settle("one", 14_000)
    assert (await worker.factors.known(DEPLOYMENT, "two")).value == 1.4
    settle("two", 10_000)
    settle("one", 18_000)
    known = [await worker.factors.known(DEPLOYMENT, scope) for scope in ("one", "two")]
    assert [factor.value for factor in known] == [1.8, 1.0]


async def test_a_process_alone_with_its_store_knows_it_after_a_restart() -> None:
    store = MemoryStore()
    first = Worker(store, is_shared=False)
    first.windows.settled(DEPLOYMENT, Fitted(b"", counted_tokens=10_000), Usage(13_000, 1), scope="one")
    await first.state.aclose()
    second = Worker(store, is_shared=False)
    assert (await second.fitted(talk(20_000))).counted_tokens * 1.3 <= WINDOW - OUTPUT - 100
    assert (await second.factors.known(DEPLOYMENT, "one")).value == 1.3
