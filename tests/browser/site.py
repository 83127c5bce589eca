"""A proxy with pages and a master key, on loopback. The sessions of ``stratiform demo`` have gone through it."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.lab.demo import MODEL, Sample, usages
from proxy.lab.demo.chats import samples
from proxy.lab.demo.command import running
from proxy.protocol.request.tokens import bytes_over_four
from tests.waiting import until
from tests.whole import settings_of

MASTER = "sk-browser-master"
STORE = "store.sqlite"
CONFIG = f"""
general_settings: {{master_key: {MASTER}}}
model_list:
  - model_name: {MODEL}
    litellm_params: {{model: {MODEL}}}
    model_info: {{transport: embedded, cache_profile: anthropic}}
stratiform:
  clock: header
  host: 127.0.0.1
  port: 0
  log_level: error
  teams:
    - {{name: shop, keys: [demo-editor, demo-agent], budget: {{usd: 25, window: day}}}}
    - {{name: support, keys: [demo-clock, demo-support]}}
"""


@dataclass(frozen=True, slots=True)
class Site:
    """Where the proxy is, without ``/v1``."""

    url: str

    def admin(self, path: str) -> Any:
        """What the admin API answers."""
        request = urllib.request.Request(f"{self.url}/admin/{path}", headers={"authorization": f"Bearer {MASTER}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def ask(self, key: str, text: str, **more: object) -> None:
        """Send a chat request."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions, the dearest first."""
        found: list[dict[str, Any]] = self.admin("sessions")["data"]
        return sorted(found, key=lambda one: -one["cost_usd"])

    def addresses(self) -> list[str]:
        """Every page, below ``/ui``; of those of single sessions that of the dearest one."""
        dearest = self.sessions()[0]["id"]
        single = (f"/sessions/{dearest}", f"/sessions/{dearest}/requests", "/sessions/gone")
        lists = ("/sessions", "/sessions?q=nothing-has-this", "/teams", "/keys", "/keys?team=shop", "/budgets")
        return ["", "?since=30d", *lists, *single]


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """The proxy, once it lists what it was sent. Its store is a file of this folder, ``STORE``."""
    sent = samples()
    ended = max(request.at for sample in sent for request in sample.requests)
    with running(settings_of(folder, f"{CONFIG}  store: sqlite:{folder / STORE}\n"), bytes_over_four, ended) as proxy:
        asyncio.run(_send(proxy.url, sent))
        found, count = Site(proxy.url), sum(len(sample.requests) for sample in sent)
        until(lambda: sum(one["requests"] for one in found.sessions()) == count)
        yield found


async def _send(url: str, sent: Sequence[Sample]) -> None:
    await asyncio.gather(*(_send_one(url, sample) for sample in sent))


async def _send_one(url: str, sample: Sample) -> None:
    answered = [usage async for usage in usages(f"{url}/v1", f"demo-{sample.name}", sample.requests, {})]
    assert len(answered) == len(sample.requests)
