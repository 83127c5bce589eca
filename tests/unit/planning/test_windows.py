"""Requests are fitted to the windows of their models."""

import asyncio

from proxy.app.window_texts import load_window_texts
from proxy.core.providers import OPENAI
from proxy.core.request.parsed_body import parse_body
from proxy.core.request.reader import RequestReader
from proxy.core.request.tokens import bytes_over_four
from proxy.core.window.profile import Capability, CapabilityProfile
from proxy.planning.model_facts import ModelFacts
from proxy.planning.windows import ContextWindows
from proxy.ports import Deployment, Transport

DEPLOYMENT = Deployment("m", "m", Transport.EMBEDDED, OPENAI)
CHAT = CapabilityProfile("chat", Capability.CHAT)


def windows(facts: ModelFacts | None = None) -> ContextWindows:
    return ContextWindows(RequestReader(bytes_over_four, (), 1 << 24), facts or ModelFacts(), load_window_texts())


def test_a_request_whose_window_nobody_knows_is_left_as_it_is() -> None:
    parsed = parse_body(b'{"model":"m","messages":[{"role":"user","content":"a"}]}')
    assert asyncio.run(windows().fitted(parsed, CHAT, None, DEPLOYMENT)).body is parsed.body
