"""A provider that signs what it thinks, and sessions that ask for edits in front of it: whatever is described, shown,
composed or cut, what stands in front of signed thinking goes out as it did, or the answer says that it may not."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import httpx
import orjson
import pytest
from starlette.types import Receive, Scope, Send

from tests.doubles import serving
from tests.e2e.provider import Scripted, Seen, completion, read_body, replies
from tests.examples import examples, sampled
from tests.fidelity.signed import _fronts
from tests.prompt_files import write_prompts
from tests.receiver import send_whole
from tests.whole import whole

Body = dict[str, Any]

CONFIG = """
model_list:
  - model_name: m
    litellm_params: {model: openai/m, api_base: "URL/v1", api_key: sk-provider}
    model_info: {mode: tier, cache_profile: anthropic}
stratiform:
  store: sqlite:FOLDER/spend.sqlite
  clock: header
  policy: POLICY
  window:
    allowed: [narrow, wide]
    profiles:
      narrow: {capability: chat, window_tokens: 900, output_tokens: 100, margin_tokens: 0}
      wide: {capability: chat, window_tokens: 90000, output_tokens: 100, margin_tokens: 0}
"""
PROMPTS = "  prompts: {folders: [./texts], shipped: false, use: [rules, page, reminder]}\n"
TEXTS = {
    "rules": "---\nid: rules\nposition: system\n---\nFollow the rules.",
    "page": "---\nid: page\nposition: user_prefix\n---\n" + "A page of background. " * 40,
    "reminder": "---\nid: reminder\nposition: user_suffix\n---\nBe brief.",
}
CAPABILITIES: Sequence[Sequence[str]] = (
    (), ("panels",), ("files",), ("panels", "files"), ("metas",), ("detach",), ("panels", "metas"),
    ("panels", "detach"), ("files", "metas"), ("window",), ("parts",),
)  # fmt: skip
PANEL_KINDS = ("todo", "tree", "file", "console", "git", "memory", "own")
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


class Signing(Scripted):
    """Signs each answer, and finds the signatures that came back behind something else than they were made behind."""

    def __init__(self) -> None:
        super().__init__(replies({}))
        self.made: dict[str, str] = {}
        self.broken: list[str] = []
        self.says: Body = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        seen = Seen(scope["method"], scope["raw_path"].decode(), "", [])
        await read_body(seen, receive)
        self.seen.append(seen)
        fronts = _fronts(seen.json)
        self.broken = [
            block["signature"]
            for index, message in enumerate(seen.json["messages"])
            for block in message.get("thinking_blocks") or ()
            if self.made[block["signature"]] != fronts[index]
        ]
        name = f"c2ln{len(self.seen)}"
        self.made[name] = fronts[-1]
        thought = {"type": "thinking", "thinking": "Hm.", "signature": name}
        said = completion({**self.says, "thinking_blocks": [thought]})
        del said["usage"]
        await send_whole(send, 200, orjson.dumps(said), [("content-type", "application/json")])


class Session:
    """A client that keeps every message, and asks for what a random choice of capabilities gives."""

    def __init__(self, name: str) -> None:
        self.chance = Random(name)
        self.name = name
        self.uses = self.chance.choice(CAPABILITIES)
        self.panels = [
            {"id": f"p{number}", "kind": self.chance.choice(PANEL_KINDS), "content": self.text()}
            for number in range(self.chance.randint(1, 4))
        ]
        self.files = [{"path": f"f{n}.py", "content": self.text()} for n in range(self.chance.randint(1, 4))]
        self.tools = [TOOL] if self.chance.random() < 0.4 else []
        self.metas: list[Body] = []
        self.messages: list[Body] = []
        if self.chance.random() < 0.6:
            self.messages.append({"role": "system", "content": self.text()})

    def text(self) -> str:
        words = self.chance.choices(("alpha", "beta", "line", "code", "rule"), k=self.chance.choice((2, 20, 120)))
        return " ".join(words)

    @property
    def is_in_loop(self) -> bool:
        return bool(self.messages) and bool(self.messages[-1].get("tool_calls"))

    def ask(self) -> None:
        """What follows the newest answer; what is shown beside the messages may change with it."""
        chance = self.chance
        if self.is_in_loop:
            call = self.messages[-1]["tool_calls"][0]["id"]
            self.messages.append({"role": "tool", "tool_call_id": call, "content": self.text()})
        else:
            self.messages.append({"role": "user", "content": self.text()})
        for shown in (*self.panels, *self.files):
            if chance.random() < 0.3:
                shown["content"] = self.text()
        known = {meta["index"] for meta in self.metas}
        prompt_at = max(n for n, one in enumerate(self.messages) if one["role"] == "user")
        said = [n for n, one in enumerate(self.messages[:prompt_at]) if one["role"] in ("user", "assistant")]
        free = [n for n in said if n not in known and "tool_calls" not in self.messages[n]]
        if chance.random() < 0.3 and free:
            status = {"status": "deleted"} if chance.random() < 0.5 else {"status": "summarized", "tl_dr": "short"}
            self.metas.append({"index": chance.choice(free), **status})

    def body(self) -> Body:
        section: Body = {}
        if "panels" in self.uses:
            section["panels"] = self.panels
        if "files" in self.uses:
            section["files"] = [{**one, "selected": True} for one in self.files]
        if "metas" in self.uses:
            section["messages_meta"] = self.metas
        if "detach" in self.uses:
            section["detach"] = {"chunk_messages": 4, "chunk_tokens": 50, "keep_messages": 4, "keep_tokens": 50}
        if section:
            section = {"session": self.name, "panels": [], **section} if "files" not in self.uses else section
        if "parts" in self.uses:
            parts = {"instruction": self.text(), "selection": self.text()}
            section["window"] = {"profile": "wide", **dict(self.chance.sample(sorted(parts.items()), 1))}
        tools = {"tools": self.tools} if self.tools else {}
        return {"model": "m", "messages": self.messages, **tools, **({"stratiform": section} if section else {})}

    def headers(self, at: float) -> dict[str, str]:
        profile = {"x-stratiform-profile": "narrow"} if "window" in self.uses else {}
        return {"authorization": "Bearer x", "x-stratiform-time": str(at), **profile}

    def answer(self) -> Body:
        """What the model says next."""
        if self.tools and self.chance.random() < 0.4:
            call = {
                "id": f"call_{len(self.messages)}",
                "type": "function",
                "function": {"name": "run", "arguments": "{}"},
            }
            return {"content": None, "tool_calls": [call]}
        return {"content": self.text()}


def run(proxy: httpx.Client, provider: Signing, session: Session, start: float) -> tuple[int, int, int]:
    """One session under the rule: how many of its requests broke it and said so, said so in vain, and did neither."""
    at, found = start, [0, 0, 0]
    for _ in range(session.chance.randint(3, 12)):
        session.ask()
        provider.says = session.answer()
        reply = proxy.post("/v1/chat/completions", json=session.body(), headers=session.headers(at))
        if reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded":
            break  # the newest message alone does not fit
        assert reply.status_code == 200, reply.text
        is_told = "signed-front" in reply.headers.get("x-stratiform-edits", "").split(", ")
        assert is_told or not provider.broken, (session.name, session.uses, reply.headers["x-stratiform-reason"])
        found[0 if provider.broken else 1 if is_told else 2] += 1
        session.messages.append(reply.json()["choices"][0]["message"])
        at += session.chance.choice((5, 20, 60, 400, 4000))
    return found[0], found[1], found[2]


def hold(folder: Path, seed: int, policy: str, prompts: str, count: int) -> None:
    write_prompts(folder / "texts", TEXTS)
    provider = Signing()
    with serving(provider) as url:
        text = CONFIG.replace("URL", url).replace("FOLDER", str(folder)).replace("POLICY", policy) + prompts
        with whole(folder, text) as address, httpx.Client(base_url=address, timeout=60.0) as proxy:
            sessions = [Session(f"{seed}-{number}") for number in range(count)]
            found = [run(proxy, provider, one, 1.8e9 + 1e6 * number) for number, one in enumerate(sessions)]
    broken, vain, kept = map(sum, zip(*found, strict=True))
    # It says so where it has a reason to, and not of everything.
    assert broken > 0
    assert kept > 0
    assert vain < broken


@pytest.mark.parametrize(
    ("policy", "prompts"),
    sampled([("economic", ""), ("economic", PROMPTS), ("classic", PROMPTS), ("classic", "")], 2),
    ids=["economic-alone", "economic-prompts", "classic-prompts", "classic-alone"],
)
def test_what_is_edited_in_front_of_signed_thinking_is_told(tmp_path: Path, policy: str, prompts: str) -> None:
    hold(tmp_path, 1, policy, prompts, max(12, examples(40)))
