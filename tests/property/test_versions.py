"""Of a file that several messages show, a model reads the version last that the client shows last."""

import json
import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fidelity.chats import File
from tests.talk import Body, Talk, assistant, chat, lines, shown, system, user

_FILE = re.compile(r"(?:^|\n)([a-z]+\.py)\n```\n(.*?)```", re.DOTALL)
_NAMES = ("a.py", "b.py", "hot.py")
_shown = st.lists(st.tuples(st.sampled_from(_NAMES), st.integers(0, 2)), max_size=3, unique_by=lambda one: one[0])


def latest(messages: list[Body]) -> dict[str, str]:
    """Each file as it is shown last."""
    texts = (
        part["text"] if isinstance(part, dict) else part
        for message in messages
        for part in (message["content"] if isinstance(message["content"], list) else [message["content"]])
    )
    return {name: content for text in texts for name, content in _FILE.findall(text)}


@given(st.lists(st.tuples(_shown, st.booleans()), min_size=1, max_size=6), st.integers(0, 4))
@settings(max_examples=examples(300))
@example([([("a.py", 1)], True), ([("a.py", 0)], False)], 0)
def test_the_version_that_is_shown_last_stays_last(
    turns: list[tuple[list[tuple[str, int]], bool]], unseen: int
) -> None:
    """Each turn shows files, in a message that is kept or not; the first ones go another way than through the proxy."""
    talk = Talk()
    kept: list[Body] = [system("You are kind.\n" + lines(20, "rule"))]
    for number, (files, stays) in enumerate(turns):
        versions = [File(name, lines(30, name) + f"{version}\n") for name, version in files]
        context, question = shown(*versions) if versions else [], user(f"What, {number}?")
        body = chat(*kept, *context, question)
        if number >= unseen:
            plan = talk.send(json.dumps(body).encode())
            assert latest(json.loads(plan.body)["messages"]) == latest(body["messages"])
        kept += [*(context if stays else []), question, assistant(f"It is {number}.")]
