"""Which conversation a request goes on with, by its prompt alone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.planner.diagnose import Continued, Conversations, Exchanged
from proxy.planner.record import BreakKind, wire_record
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.tokens import bytes_over_four

Turn = dict[str, Any]


class Talk:
    """A client that sends all of its conversation each time. ``told`` is what the provider has answered last."""

    def __init__(self, name: str, *, strips_reminders: bool = False) -> None:
        self.name, self.messages, self.ids = name, list[Turn](), list[str]()
        self._strips = strips_reminders

    def send(self, known: Conversations, scope: str = "team", system: str = "Be brief.") -> Continued:
        """Send the next request; its answer's id follows from the conversation and the number of the request."""
        number = len(self.ids)
        asked = {"role": "user", "content": f"{self.name} asks {number}" if number else "hello"}
        shown = {**asked, "content": f"{asked['content']} <reminder>{number}</reminder>"} if self._strips else asked
        body = {"model": "m", "system": system, "messages": [*self.messages, shown]}
        found = known.find(scope, wire_record(body, bytes_over_four, at=float(number)))
        self.ids.append(f"{self.name}-{number}")
        known.add(scope, found, Exchanged(found.record, self.ids[-1], "account"))
        self.messages += [asked, {"role": "assistant", "content": f"answer {number} to {self.name}"}]
        return found


@given(st.lists(st.integers(0, 3), max_size=24), st.booleans())
def test_each_of_several_conversations_finds_its_own_last_answer(order: list[int], strips: bool) -> None:
    known, talks = Conversations(1 << 20), [Talk(f"t{n}", strips_reminders=strips) for n in range(4)]
    for which in order:
        talk = talks[which]
        expected = talk.ids[-1:]
        previous = talk.send(known).previous("account")
        # A first question says of no conversation whose it is, as many begin alike; and a last turn that is sent in
        # another form later says nothing before the second answer.
        if len(talk.ids) > 2:
            assert previous == expected[0]
        else:
            assert previous in {"", *(name for one in talks for name in one.ids)}


def test_another_account_or_another_team_has_no_answer_to_compare_with() -> None:
    known, talk = Conversations(1 << 20), Talk("t")
    talk.send(known)
    found = talk.send(known)
    assert (found.previous("account"), found.previous("other")) == ("t-0", "")
    assert talk.send(known, scope="another team").comparison is None


def test_a_changed_system_text_is_found_to_be_the_same_conversation() -> None:
    known, talk = Conversations(1 << 20), Talk("t")
    talk.send(known)
    talk.send(known)
    found = talk.send(known, system="Be long.")
    assert found.previous("account") == "t-1"
    broke = found.comparison.diagnosed(None, ANTHROPIC)
    assert (broke.kind, broke.culprit, broke.expected_cause) == (BreakKind.CHANGED, "system", "system-changed")


def test_where_the_provider_keeps_the_conversation_the_answers_id_tells() -> None:
    known = Conversations(1 << 20)
    first = known.find("team", wire_record({"input": "hello", "instructions": "Be brief."}, bytes_over_four, at=0.0))
    known.add("team", first, Exchanged(first.record, "resp_1", "account"))
    more = wire_record({"input": "go on", "previous_response_id": "resp_1"}, bytes_over_four, at=1.0)
    found = known.find("team", more, "resp_1")
    assert found.previous("account") == "resp_1"
    assert found.record.count == 3, "instructions and first turn stand in front"
    assert known.find("team", more, "resp_9").comparison is None


def test_memory_is_bounded() -> None:
    known = Conversations(200_000)
    for number in range(400):
        talk = Talk(f"t{number}")
        talk.send(known)
        talk.send(known)
    assert len(known._held) < 100
    assert len(known._last) <= 333
