"""The pages of a proxy, as a browser without scripts sees them. The proxy is put together as ``stratiform serve`` does
it.

async with visited(folder) as browser:
    reply = await browser.get("/ui")
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import httpx

from proxy.app.composition import BuiltApp, build
from proxy.app.web import create_app
from proxy.kit.clock import Readings
from proxy.protocol.request.tokens import bytes_over_four
from tests.whole import settings_of

MASTER = "sk-master-of-the-pages-1234"
CONFIG = """
model_list:
  - {model_name: m, litellm_params: {model: claude-sonnet-4-5}, model_info: {transport: embedded, cache_profile: anthropic}}
"""  # noqa: E501
WITH_MASTER = f"{CONFIG}general_settings: {{master_key: {MASTER}}}\nstratiform: {{store: memory}}\n"
OPEN = f"{CONFIG}stratiform: {{store: memory}}\n"


@dataclass
class Browser:
    """One browser, with its cookies. ``peer`` is its network address."""

    assembly: BuiltApp
    peer: str = "127.0.0.1"
    cookies: dict[str, str] = field(default_factory=dict)
    asked: int = 0

    def __post_init__(self) -> None:
        self.app = create_app(self.assembly.parts)

    async def send(
        self, method: str, path: str, headers: Mapping[str, Any] = MappingProxyType({}), **more: Any
    ) -> httpx.Response:
        """One request."""
        transport = httpx.ASGITransport(self.app, client=(self.peer, 40_000))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:4000", cookies=self.cookies
        ) as client:
            reply = await client.request(method, path, headers=dict(headers), **more)
        self.cookies |= dict(reply.cookies)
        return reply

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """A page."""
        return await self.send("GET", path, {name.replace("_", "-"): value for name, value in headers.items()})

    async def enter(self, key: str = MASTER) -> httpx.Response:
        """Log in."""
        return await self.send("POST", "/ui/login", data={"key": key})

    async def submit(self, kind: str, action: str, **fields: str) -> httpx.Response:
        """Send a form of the page, with the page's token."""
        token = re.search(r'name="token" value="(\w+)"', (await self.get(f"/ui/{kind}")).text)
        given = {"token": token[1] if token is not None else "", "action": action, **fields}
        return await self.send("POST", f"/ui/{kind}", data=given)

    async def admin(self, path: str, key: str = MASTER) -> Any:
        """The answer of the admin API."""
        return (await self.send("GET", f"/admin/{path}", {"authorization": f"Bearer {key}"})).json()

    async def ask(self, turn: int, talk: str = "a", words: str = "", **more: Any) -> None:
        """Send the request with this number of a conversation."""
        self.asked += 1
        messages = [{"role": "system", "content": f"{words} rules " * 1500}]
        for number in range(turn):
            messages += [{"role": "user", "content": f"{talk} asks {number}"}, {"role": "assistant", "content": "Yes."}]
        messages.append({"role": "user", "content": f"{talk} asks {turn}"})
        body = {"model": "m", "messages": messages, "max_tokens": 20, **more}
        headers = {"authorization": f"Bearer {MASTER}"}
        reply = await self.send("POST", "/v1/chat/completions", headers, json=body)
        assert reply.status_code == 200, reply.text
        for _ in range(10_000):
            await asyncio.sleep(0.01)
            if sum(one["requests"] for one in (await self.listed())) == self.asked:
                return
        raise AssertionError("the session is not listed")

    async def listed(self) -> Any:
        """The live sessions, as the admin API lists them."""
        return (await self.assembly.parts.ui.pages._service.answer("GET", "sessions"))["data"]  # type: ignore[union-attr]


@asynccontextmanager
async def visited(folder: Path, text: str = WITH_MASTER, readings: Readings | None = None) -> AsyncIterator[Browser]:
    """A browser that is not logged in yet."""
    assembly = await build(settings_of(folder, text), encode=bytes_over_four, readings=readings)
    try:
        with patch("proxy.services.session_book._EVERY_S", 0.01):
            yield Browser(assembly)
    finally:
        await assembly.parts.engine.aclose()
        for close in reversed(assembly.parts.on_close):
            await close()
