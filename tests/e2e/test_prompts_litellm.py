"""The operator's texts and the window hold for what litellm sends, too."""

from pathlib import Path

from tests.contract.litellm_calls import LITELLM
from tests.e2e.provider import replies
from tests.e2e.test_prompts_everywhere import OWN, SYSTEM, talk, world

pytestmark = LITELLM


def test_what_litellm_sends_has_the_operators_texts(tmp_path: Path) -> None:
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "fine"}], "usage": {"input_tokens": 9, "output_tokens": 2},
    }  # fmt: skip
    asked = talk(60)
    with world(tmp_path, replies(answer), profile="mine") as there:
        raw = there.ask(asked, model="other")
        (sent,) = there.sent()
    assert raw.parse().choices[0].message.content == "fine"
    assert raw.headers["x-stratiform-edits"] == "prompts-composed, window-trimmed"
    system = "".join(part["text"] for part in sent["system"])
    assert system.strip() == f"{SYSTEM}\n\n{OWN}".strip()
    said = [
        message["content"] if isinstance(message["content"], str) else "".join(p["text"] for p in message["content"])
        for message in sent["messages"]
    ]
    assert said[-1] == "Question:\n\nand now?\n\nBe brief."
    kept = [message["content"] for message in asked[-len(said) :]]
    assert [text.strip() for text in said[:-1]] == [text.strip() for text in kept[:-1]]
    assert 1 < len(said) < 121
