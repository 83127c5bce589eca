"""With the model's own tokenizer, what is sent never has more tokens than the budget, whatever the texts are."""

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.ports import ComposedRequest
from proxy.kit.errors import ContextTooLong
from proxy.models import Deployment, Transport
from proxy.prompts.window import Capability, CapabilityProfile, PartCaps, VirtualFile, WindowParts
from proxy.protocol.providers import OPENAI
from proxy.protocol.request import Inset, inset_body
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import MESSAGE_OVERHEAD_TOKENS, quick
from proxy.services import ModelFacts, local_encode
from proxy.services.windows import ContextWindows
from tests.examples import examples
from tests.talk import assistant, calling, result, system, user
from tests.windows import TEXTS, Body

PIECES = st.sampled_from([
    "def f(x):\n", "return 1\n", "    if x == 1:\n        y += x\n", "}\n\n", " ", "\t", "\n", "   ", '\\"', "\r\n",
    "漢字仮名", "語", "。", "한국어", "العربية", "😀", "👍🏽", "👩\u200d👩\u200d👧", "é", "e\u0301", "ﬁ",
    "\u2028", "\0", "AAAA", "f7c3bc1d", "0123456789", "=====", "xX_", "https://example.org/?a=b&c=d",
    "Ordinary words of a prompt. ",
])  # fmt: skip


@st.composite
def texts(draw: st.DrawFn, most: int = 150) -> str:
    """Few pieces, each of them many times: this is where estimates go wrong."""
    runs = draw(st.lists(st.tuples(PIECES, st.integers(1, most)), max_size=5))
    return "".join(piece * times for piece, times in runs)


@st.composite
def talks(draw: st.DrawFn) -> list[Body]:
    messages: list[Body] = [system(draw(texts(20)))]
    for number, kind in enumerate(draw(st.lists(st.sampled_from("uat"), max_size=8))):
        if kind == "t":
            messages += [calling(f"c{number}"), result(f"c{number}", draw(texts()))]
        else:
            messages.append((user if kind == "u" else assistant)(draw(texts())))
    return [*messages, user(draw(texts(20)))]


MAYBE = st.none() | texts()
PARTS = st.builds(
    WindowParts,
    instruction=st.none() | texts(20),
    selection=st.none() | texts(20),
    prefix=MAYBE,
    suffix=MAYBE,
    summary=MAYBE,
    virtual_files=st.lists(texts(40), max_size=3).map(
        lambda found: tuple(VirtualFile(f"f{n}", text) for n, text in enumerate(found))
    ),
)
CAPS = st.none() | st.integers(0, 300)
PROFILES = st.builds(
    CapabilityProfile,
    name=st.just("p"),
    capability=st.sampled_from(Capability),
    window_tokens=st.integers(100, 1_000) | st.integers(1_000, 8_000),
    output_tokens=st.just(0),
    margin_tokens=st.just(0),
    caps=st.builds(PartCaps, prefix=CAPS, suffix=CAPS, summary=CAPS),
    tail_messages=st.none() | st.integers(1, 12),
    may_shorten_system=st.booleans(),
)


def tokens_in(messages: list[dict[str, Any]]) -> int:
    """The tokens of messages, counted here by what they say."""
    tokens = 0
    for message in messages:
        tokens += local_encode()(message["content"]) + MESSAGE_OVERHEAD_TOKENS if message["content"] is not None else 0
        tokens += sum(local_encode()(json.dumps(call)) for call in message.get("tool_calls") or ())
    return tokens


@settings(max_examples=examples(100))
@given(talks(), PARTS, PROFILES, st.builds(Inset, texts(10), texts(10)), st.sampled_from([1.0, 0.5]))
def test_what_is_sent_never_exceeds_the_budget_as_the_models_tokenizer_counts(
    talk: list[Body], parts: WindowParts, profile: CapabilityProfile, inset: Inset, scale: float
) -> None:
    reader = RequestReader(quick(local_encode()), (), 1 << 22)
    windows = ContextWindows(reader, local_encode(), ModelFacts(), TEXTS)
    body = json.dumps({"model": "m", "messages": talk}).encode()
    deployment = Deployment("m", "m", Transport.EMBEDDED, OPENAI)
    composed = ComposedRequest(profile=profile, parts=parts, inset=inset)
    try:
        found = asyncio.run(windows.fitted(reader.parse(body), composed, deployment, scale=scale))
    except ContextTooLong:
        return
    out = json.loads(inset_body(found.body, inset))["messages"]
    assert tokens_in(out) <= int((profile.window_tokens or 0) * scale)
    assert found.counted_tokens in (0, tokens_in(out))
    # What was counted is remembered, and found to be the same.
    again = asyncio.run(windows.fitted(reader.parse(body), composed, deployment, scale=scale))
    assert again == found
