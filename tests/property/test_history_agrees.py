"""The rules of the history, as the proxy has them and as the fidelity checker has them, come to the same messages."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.context.history import MessageMeta, Status, ruled
from tests.examples import examples
from tests.fidelity.live_history import expected
from tests.turn_notation import message, noted

WORDS = st.sampled_from(
    [
        "user", "asst", "asst:null", 'user:""', "asst:[]", "sys:between", "odd",
        "call(1)", "call(1):look", "call(2)", "call(2):hm", "call(1,2)", "call(1,2,3):all", "call(3):[a|image]",
        "result(1)", "result(2)", "result(3)", "result(4)", "oldcall", "oldresult",
    ]
)  # fmt: skip
STATUSES = st.sampled_from([*[Status.ACTIVE] * 4, Status.SUMMARIZED, Status.DELETED, Status.DETACHED])


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.tuples(WORDS, STATUSES), max_size=12))
def test_the_proxy_and_the_checker_send_the_same_messages(talk: list[tuple[str, Status]]) -> None:
    given_words = [word for word, _ in talk]
    # System messages, and the last one of the user, have no status.
    statuses = {
        at: status
        for at, (word, status) in enumerate(talk)
        if status is not Status.ACTIVE and not word.startswith("sys")
    }
    bodies: list[Any] = [message("user:begin"), *map(message, given_words), message("user:end")]
    metas = {
        at + 1: MessageMeta(at + 1, status, "short" if status is Status.SUMMARIZED else "")
        for at, status in statuses.items()
    }
    found = ruled(noted(" ".join(["user:begin", *given_words, "user:end"])), metas)
    said = {at: {"status": meta.status.value, "tl_dr": meta.tl_dr} for at, meta in metas.items()}
    sent = [json.loads(turn.raw) for turn in found.conversation]
    assert sent == [each.message for each in expected(bodies, said)]
    assert list(found.origins) == [each.origin for each in expected(bodies, said)]
