"""Live sessions of two proxies over one Redis, as either of them lists them; and while the store is away, the page says
since when its figures stand."""

import json
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.doubles import serving
from tests.e2e.fleet import CLAUDE, KEY, TEAM, claude_configuration
from tests.e2e.provider import embedded_app, new_embedded
from tests.e2e.test_layout_state import ask, session
from tests.redis_server import RedisServer
from tests.waiting import until
from tests.whole import whole_of

pytestmark = pytest.mark.slow

MASTER = "sk-session-master"
TURNS = 8


def get(url: str, path: str = "") -> Any:
    request = urllib.request.Request(f"{url}/admin/sessions{path}", headers={"authorization": f"Bearer {MASTER}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def requests(url: str) -> int:
    return sum(one["requests"] for one in get(url)["data"])


def test_either_proxy_lists_what_both_have_served(tmp_path: Path, redis: RedisServer) -> None:
    with ExitStack() as stack:
        upstream = stack.enter_context(serving(embedded_app(new_embedded())))
        served = {**claude_configuration(upstream, redis.url), "general_settings": {"master_key": MASTER}}
        urls = [stack.enter_context(whole_of(tmp_path / name, served)) for name in ("a", "b")]
        usage = []
        for name in ("Ann", "Bob"):
            # Bob's requests go to the two in turn.
            for turn, messages in enumerate(session(name, TURNS)):
                usage.append(ask(urls[turn % 2 if name == "Bob" else 0], messages))
        for url in urls:
            until(lambda url=url: requests(url) == 2 * TURNS)
        first, second = (get(url)["data"] for url in urls)
        assert first == second
        assert [one["requests"] for one in first] == [TURNS, TURNS]
        assert sum(one["read_tokens"] for one in first) == sum(read for read, _ in usage)
        prompts = [one["read_tokens"] + one["write_tokens"] + one["uncached_tokens"] for one in first]
        assert sum(prompts) == sum(prompt for _, prompt in usage)
        assert {(one["team"], one["model"], one["mode"]) for one in first} == {(TEAM, CLAUDE, "tier")}

        def breakdowns() -> list[Any]:
            return [get(url, f"/{first[0]['id']}/breakdown") for url in urls]

        # What a session consists of is written apart from the list, and perhaps later.
        until(lambda: len({json.dumps(one["blocks"]) for one in breakdowns()}) == 1)
        until(lambda: [len(one["diagnosis"]) for one in breakdowns()] == [TURNS, TURNS])
        shown = breakdowns()
        keys = [item["key"] for block in shown[0]["blocks"] for c in block["contents"] for item in c["items"]]
        assert any(key.endswith("stable.py") for key in keys)
        for one in shown:
            assert sum(each["prompt"] for each in one["diagnosis"]) <= sum(prompts)
            assert [each["at"] for each in one["diagnosis"]] == sorted(each["at"] for each in one["diagnosis"])
            for each in one["diagnosis"]:
                parts = each["before"] + each["tokens"] + each["behind"]
                assert parts == (each["prompt"] if each["kind"] else 0)
        text = json.dumps(shown)
        assert "Rule 7" not in text
        assert KEY not in text

        began = time.time()
        redis.kill()
        page = get(urls[0])
        assert page["store_away"]
        assert page["as_of"] < began
        assert sum(one["requests"] for one in page["data"]) == 2 * TURNS
        redis.start()
        until(lambda: not get(urls[0])["store_away"])
        assert requests(urls[0]) == 2 * TURNS
