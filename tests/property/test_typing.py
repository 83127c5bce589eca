"""Sessions of typing with inline completion: what is sent fits, and begins as the request before it did."""

import asyncio
import json
import random
from collections.abc import Iterator
from os.path import commonprefix

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.ports import ComposedRequest
from proxy.models import Deployment, Transport
from proxy.prompts.window import Capability, CapabilityProfile, PartCaps, PartName, WindowParts
from proxy.protocol.providers import OPENAI
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import quick
from proxy.services import ModelFacts, local_encode
from proxy.services.windows import ContextWindows
from tests.examples import examples
from tests.windows import TEXTS

DEPLOYMENT = Deployment("m", "m", Transport.EMBEDDED, OPENAI)
WORDS = [
    "def", "return", "value", "self", "for", "in", "range", "if", "not", "None", "x", "result", "é", "漢字",
    "# words",
]  # fmt: skip
ENDS = [" ", " ", " ", "(", ")", ":\n    ", "\n", "\n\n", ", ", ".", " = ", "  "]


def source(seed: int, chars: int) -> str:
    """A file of so many characters, about as code is."""
    rng = random.Random(seed)
    parts: list[str] = []
    size = 0
    while size < chars:
        parts.append(rng.choice(WORDS) + str(rng.randrange(100)) * (rng.random() < 0.3) + rng.choice(ENDS))
        size += len(parts[-1])
    return "".join(parts)[:chars]


def typing(seed: int, text: str, start: int, steps: int) -> Iterator[tuple[str, str]]:
    """What stands in front of the cursor and behind it: letters, words and lines are typed, and some are deleted."""
    rng = random.Random(seed)
    at = start
    for _ in range(steps):
        at = min(len(text) - 50, at + rng.choice([1, 1, 1, 2, 4, 9, 40]))
        if rng.random() < 0.04:
            at = max(1, at - rng.randrange(1, 15))
        yield text[:at], text[-start // 2 :]


def windows() -> ContextWindows:
    return ContextWindows(RequestReader(quick(local_encode()), (), 1 << 22), local_encode(), ModelFacts(), TEXTS)


def profile(window: int, caps: PartCaps) -> CapabilityProfile:
    return CapabilityProfile("p", Capability.COMPLETION, window, output_tokens=32, margin_tokens=16, caps=caps)


async def completed(fitter: ContextWindows, prefix: str, suffix: str, terms: CapabilityProfile) -> tuple[str, str]:
    """The prompt and the suffix of a completion as they are sent."""
    body = json.dumps({"model": "m", "prompt": prefix, "suffix": suffix, "max_tokens": 32}).encode()
    fitted = await fitter.fitted_completion(RequestReader(quick(local_encode()), (), 1).parse(body), terms, DEPLOYMENT)
    found = json.loads(fitted.body)
    return found["prompt"], found["suffix"]


async def in_message(fitter: ContextWindows, prefix: str, suffix: str, terms: CapabilityProfile) -> tuple[str, str]:
    """The same as parts of a chat."""
    reader = RequestReader(quick(local_encode()), (), 1 << 20)
    parsed = reader.parse(b'{"model":"m","messages":[{"role":"user","content":"go on"}]}')
    composed = ComposedRequest(profile=terms, parts=WindowParts(prefix=prefix, suffix=suffix))
    found = await fitter.fitted(parsed, composed, DEPLOYMENT)
    text = json.loads(found.body)["messages"][0]["content"].removesuffix("\n\ngo on")
    return text.split("\n\n" + TEXTS.above[PartName.SUFFIX], 1)[0].split("\n", 1)[1], ""


@pytest.mark.parametrize("send", [completed, in_message])
@settings(max_examples=examples(40, least=3))
@given(st.integers(0, 1 << 30), st.sampled_from([700, 1_500, 4_096]), st.booleans())
def test_a_full_window_repeats_the_request_before(send: object, seed: int, window: int, has_caps: bool) -> None:
    caps = PartCaps(prefix=window // 2, suffix=window // 8) if has_caps else PartCaps()
    terms, text = profile(window, caps), source(seed, 9 * window)

    async def main() -> tuple[int, int]:
        fitter, count, tokens, before, moves, falls = windows(), local_encode(), 0, "", 0, 0
        for prefix, suffix in typing(seed, text, 5 * window, 60):
            sent, _ = await send(fitter, prefix, suffix, terms)  # type: ignore[operator]
            assert prefix.endswith(sent)
            moves += len(commonprefix([before, sent])) < 0.9 * len(before)
            falls += count(prefix) < tokens
            tokens, before = count(prefix), sent
        return moves, falls

    moves, falls = asyncio.run(main())
    # The cut moves once while a quarter of the window is typed: at most twice in these sessions. Where the text becomes
    # shorter in tokens, by a deletion or by the letter that completes a word, it may move back, and on again.
    assert moves <= 2 + 2 * falls


@settings(max_examples=examples(60))
@given(
    st.integers(0, 1 << 30),
    st.integers(0, 20_000),
    st.integers(60, 4_096),
    st.none() | st.integers(0, 300),
    st.none() | st.integers(0, 300),
)
def test_a_completion_never_exceeds_its_budget(
    seed: int, chars: int, window: int, prefix_cap: int | None, suffix_cap: int | None
) -> None:
    terms, text = profile(window, PartCaps(prefix=prefix_cap, suffix=suffix_cap)), source(seed, chars)
    prefix, suffix = text[: chars * 2 // 3], text[chars * 2 // 3 :]
    sent, behind = asyncio.run(completed(windows(), prefix, suffix, terms))
    assert prefix.endswith(sent)
    assert suffix.startswith(behind)
    tokens, budget = local_encode()(sent) + local_encode()(behind), window - 48
    assert tokens <= budget
    if (sent, behind) != (prefix, suffix):
        # What fits is kept, but for what the cut and the steps of texts leave free.
        assert tokens >= min(budget // 2, budget - 40)
