"""The whole proxy on a machine whose clock is stepped."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from proxy.kit.clock import TIME_HEADER, Readings
from tests.doubles import serving
from tests.e2e.provider import Scripted, completion, replies
from tests.whole import whole

KEY = "sk-red-declared"
CONFIG = """
model_list: [{{model_name: small, litellm_params: {{model: openai/small-1, api_base: "{provider}/v1", api_key: none}}}}]
general_settings: {{master_key: sk-master}}
stratiform:
  store: memory
  prices: {{small-1: {{input_cost_per_token: 0, output_cost_per_token: 0.1}}}}
  teams: [{{name: red, keys: [{key}], budget: {{usd: 1, window: hour}}}}]
"""
HELLO = {"model": "small", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
HOUR, DAY = 3600.0, 86400.0
# Noon and a half: no window ends while the test runs.
HALF_PAST = 1_700_051_400.0


class Place:
    """A proxy in front of a provider. ``off`` is how far its machine's wall clock has been stepped."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.off = 0.0
        address = stack.enter_context(serving(Scripted(replies(completion()))))
        began = time.monotonic()
        readings = Readings(lambda: HALF_PAST + time.monotonic() - began + self.off, time.monotonic)
        text = CONFIG.format(provider=address, key=KEY)
        url = stack.enter_context(whole(folder, text, readings))
        self._http = stack.enter_context(httpx.Client(base_url=url, timeout=60))

    def ask(self, key: str = KEY, **headers: str) -> int:
        sent = {"authorization": f"Bearer {key}", **headers}
        status: int = self._http.post("/v1/chat/completions", json=HELLO, headers=sent).status_code
        return status

    def exhaust(self) -> None:
        for _ in range(20):
            if self.ask() == 429:
                return
        pytest.fail("the budget never ends")

    def make_key(self, **fields: Any) -> str:
        answer = self._http.post("/admin/keys", json=fields, headers={"authorization": "Bearer sk-master"})
        key: str = answer.json()["key"]
        return key


def test_a_step_of_the_clock_ends_no_key(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = Place(stack, tmp_path)
        key = place.make_key(expires_at="1h")
        place.off = DAY
        assert place.ask(key) == 200


def test_a_client_cannot_move_the_window(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = Place(stack, tmp_path)
        place.exhaust()
        assert place.ask(**{TIME_HEADER: str(HALF_PAST + 2 * HOUR)}) == 429
