"""Where a provider stores every prefix, the client's own request is priced as an independent provider bills it.

An edit in a message of files leaves everything in front of it in the cache.
"""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocol.providers import PROFILES
from tests.economics.billing import Provider
from tests.examples import examples
from tests.fidelity.chats import File
from tests.talk import Body, Talk, assistant, chat, lines, shown, system, user

PATHS = ("a.py", "b.py", "src/c.py", "src/d.py", "e.md")
# The shortest prefix that is stored, a span of one of the files, and what the two count in other ways.
_MOST_TOKENS_APART = 2_000


def sent(number: int, path: str, line: int, files: dict[str, list[str]], turns: list[Body]) -> bytes:
    """The next request of a client that shows its files in front of the conversation, after an edit."""
    files[path][line] = f"edit {number}"
    turns += [assistant("Done."), user(f"Question {number}")] if turns else [user(f"Question {number}")]
    context = shown(*(File(each, "\n".join(text)) for each, text in files.items()))
    return json.dumps(chat(system(lines(60, "rule")), *context, *turns)).encode()


@settings(max_examples=examples(20), deadline=None)
@given(
    st.sampled_from(["openai", "deepseek", "qwen-implicit", "vllm"]),
    st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from([0, 60, 118])), min_size=1, max_size=5),
)
def test_files_in_one_message_are_read_up_to_the_first_edit(name: str, edits: list[tuple[str, int]]) -> None:
    talk, provider = Talk(profile=PROFILES[name]), Provider(PROFILES[name])
    files, turns = {path: lines(120, path).split("\n") for path in PATHS}, list[Body]()
    for number, (path, line) in enumerate([(PATHS[0], 0), *edits]):
        raw = sent(number, path, line, files, turns)
        plan, usage = talk.send(raw), provider.send(raw, talk.now)
        assert plan.own is not None
        assert abs(plan.own.read - usage.read) < _MOST_TOKENS_APART


def test_files_that_change_in_turn_cost_no_more_than_the_allowance() -> None:
    talk, provider, own = (Talk(profile=PROFILES["openai"]), *(Provider(PROFILES["openai"]) for _ in range(2)))
    files, turns = {path: lines(120, path).split("\n") for path in PATHS}, list[Body]()
    largest = 0
    for number in range(30):
        raw = sent(number, PATHS[2 * number % 5], 60, files, turns)
        provider.send(talk.send(raw).body, talk.now)
        largest = max(largest, own.send(raw, talk.now).prompt)
    assert provider.cost < 1.005 * own.cost + 2 * largest
