"""A request that goes to a second deployment is fitted to that one's window, from what the client sent."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from tests.doubles import serving
from tests.e2e.provider import DONE, Scripted, chunk, completion, replies, streams, usage_chunk
from tests.e2e.test_windows import turns
from tests.whole import whole

CONFIG = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{first}/v1", api_key: ka, order: 1}}
    model_info: {{cache_profile: none, max_input_tokens: {first_window}}}
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{second}/v1", api_key: kb, order: 2}}
    model_info: {{cache_profile: none, max_input_tokens: {second_window}}}
router_settings: {{num_retries: 1}}
stratiform:
  store: memory
  window:
    models: {{m: mine}}
    profiles:
      mine: {{capability: chat, output_tokens: 100, margin_tokens: 0}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("first_window", "second_window"), [(2_000, 1_000), (1_000, 2_000)])
def test_a_second_deployment_gets_what_fits_its_own_window_counted_once(
    tmp_path: Path, first_window: int, second_window: int, stream: bool
) -> None:
    fine = streams(chunk("fine"), chunk(finish="stop"), usage_chunk(), DONE) if stream else replies(completion())
    busy, second = Scripted(replies({"error": {"message": "busy"}}, 503)), Scripted(fine)
    asked = turns(40)
    with ExitStack() as stack:
        urls = {"first": stack.enter_context(serving(busy)), "second": stack.enter_context(serving(second))}
        windows = {"first_window": first_window, "second_window": second_window}
        proxy = stack.enter_context(whole(tmp_path, CONFIG.format(**urls, **windows)))
        client = stack.enter_context(openai.OpenAI(base_url=f"{proxy}/v1", api_key="-", max_retries=0))
        answer = client.chat.completions.with_raw_response.create(model="m", messages=asked, stream=stream)
        parsed: Any = answer.parse()
        assert list(parsed)
        metrics = httpx.get(f"{proxy}/metrics").text
    before, after = (seen.json["messages"] for seen in (busy.seen[-1], second.seen[-1]))
    assert (len(before) > len(after)) is (first_window > second_window)
    for sent in (before, after):
        assert sent == asked[-len(sent) :]
        assert sent[0]["role"] == "user"
    found = re.search(r'^stratiform_edited_messages_total\{edit="window-trimmed"\} (\S+)$', metrics, re.MULTILINE)
    assert found is not None
    assert float(found[1]) == len(asked) - len(after)
