"""The anthropic SDK in front of the proxy: errors of ours arrive as the classes that its users handle.

It is imported where it is called: each worker reads this file, and the SDK is a second of processor time.
"""

from typing import TYPE_CHECKING

import pytest

from proxy.engine.exchange import Principal
from proxy.kit.errors import Forbidden, RateLimited, Unauthorized
from proxy.models import Headers
from tests.doubles import OpenDoor
from tests.e2e.conftest import Start
from tests.e2e.provider import Scripted, replies

if TYPE_CHECKING:
    import anthropic

# The import of the SDK takes longer than a thousand fast tests; test_passthrough.py asks the same path without it.
pytestmark = pytest.mark.slow

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 2},
}


class Shut(OpenDoor):
    """Refuses every request with the error that is set."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def admit(self, headers: Headers, now: float) -> Principal:
        raise self._error


def ask(url: str) -> "anthropic.types.Message":
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="sk-client", max_retries=0) as client:
        return client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "hello"}])


def test_a_message_passes(start: Start) -> None:
    provider = Scripted(replies(MESSAGE))
    found = ask(start(provider).url)
    assert (found.content[0].type, found.usage.input_tokens) == ("text", 5)
    assert provider.seen[0].path == "/v1/messages"


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Unauthorized("no such key"), "AuthenticationError"),
        (Forbidden("not this model"), "PermissionDeniedError"),
        (RateLimited("slowly", kind="requests", retry_after_s=3), "RateLimitError"),
    ],
)
def test_a_refusal_is_the_class_that_the_provider_would_cause(start: Start, error: Exception, raised: str) -> None:
    import anthropic

    provider = Scripted(replies(MESSAGE))
    with pytest.raises(getattr(anthropic, raised)) as caught:
        ask(start(provider, admission=Shut(error)).url)
    body = caught.value.body
    assert isinstance(body, dict)
    assert (body["type"], body["error"]["message"]) == ("error", str(error))
    assert provider.seen == []
    told = caught.value.response.headers
    assert "x-stratiform-id" in told
    assert "x-stratiform-mode" not in told, "nothing was sent in any mode"
