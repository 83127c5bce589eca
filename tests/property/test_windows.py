"""Whatever a conversation looks like: what is sent fits, and nothing is torn apart."""

import json
from itertools import count, pairwise
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.prompts.window import Capability, CapabilityProfile, PartCaps, VirtualFile, WindowParts
from proxy.prompts.window.fitting import Room, apart, cut_of, head, steps_of, tail
from proxy.protocol.request.message import Message
from proxy.protocol.request.tokens import bytes_over_four
from tests.talk import assistant, calling, result, system, user
from tests.windows import Body, fit, parts_in, said, sent, text_of, tokens_of, transcript_of, unpaired

SIZES = st.integers(0, 60)
TEXT = st.text(alphabet='ab \n"\\é語', max_size=900)
PARTS = st.none() | TEXT


@st.composite
def conversations(draw: st.DrawFn) -> list[Body]:
    """Turns of users, answers, tool calls with their results, late results and notices, each text its own. Some calls
    and results are parts of the content, so that the results stand in a message of the user."""
    ids = (str(number) for number in count())
    messages: list[Body] = []
    late: list[str] = []
    for number, kind in enumerate(draw(st.lists(st.sampled_from("uuaaccldnpp"), max_size=25))):
        text = text_of(draw(SIZES), f"{number}")
        if kind == "u":
            messages.append(user(text))
        elif kind == "a":
            messages.append(assistant(text))
        elif kind == "n":
            messages.append(system(text) if messages else user(text))
        elif kind in "cl":
            called = [next(ids) for _ in range(draw(st.integers(1, 3)))]
            messages.append(calling(*called))
            if kind == "l":
                late.append(called.pop())
            messages += [result(one, text) for one in called]
        elif kind == "p":
            parts = [next(ids) for _ in range(draw(st.integers(1, 3)))]
            calls = [{"type": "tool_use", "id": one, "name": "look", "input": {}} for one in parts]
            messages.append({"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, *calls]})
            results = [{"type": "tool_result", "tool_use_id": one, "content": text} for one in parts]
            messages.append({"role": "user", "content": results})
        elif late:
            messages.append(result(late.pop(), text))
    messages += [result(one, "late") for one in late]
    return messages or [user("hello")]


@st.composite
def named_parts(draw: st.DrawFn) -> WindowParts:
    files = draw(st.lists(TEXT, max_size=4))
    return WindowParts(
        instruction=draw(PARTS),
        selection=draw(PARTS),
        prefix=draw(PARTS),
        suffix=draw(PARTS),
        summary=draw(PARTS),
        virtual_files=tuple(VirtualFile(f"f{n}", text, n == 1) for n, text in enumerate(files)),
    )


def questions_in(talk: list[Body]) -> list[str]:
    """What the user has asked."""
    return [m["content"] for m in talk if m["role"] == "user" and not parts_in(m, "tool_result")]


PROFILES = st.builds(
    CapabilityProfile,
    name=st.just("p"),
    capability=st.sampled_from(Capability),
    caps=st.builds(PartCaps, prefix=st.none() | SIZES, suffix=st.none() | SIZES, summary=st.none() | SIZES),
    tail_messages=st.none() | st.integers(1, 12),
    may_shorten_system=st.booleans(),
)


@given(
    st.just([]) | conversations(),
    st.none() | named_parts(),
    PROFILES,
    st.integers(0, 9) | st.integers(0, 900),
    SIZES,
)
@example([], None, CapabilityProfile("p", Capability.COMPLETION, may_shorten_system=True), 3, 60)
def test_what_is_sent_has_a_message_and_never_exceeds_the_budget(
    talk: list[Body], parts: WindowParts | None, profile: CapabilityProfile, budget: int, system_tokens: int
) -> None:
    messages = [system(text_of(system_tokens, "s")), *talk]
    found = fit(messages, budget, parts, profile)
    if found.excess_tokens:
        assert found.messages is None
        return
    out = sent(messages, found)
    assert out
    assert tokens_of(out) <= budget
    assert found.sizes.get("prompt", 0) <= budget
    assert fit(messages, budget, parts, profile) == found


@given(conversations(), st.integers(0, 900), PROFILES)
def test_what_was_trimmed_is_not_trimmed_again(talk: list[Body], budget: int, profile: CapabilityProfile) -> None:
    messages = [system(text_of(10, "s")), *talk]
    found = fit(messages, budget, None, profile)
    if not found.excess_tokens:
        out = sent(messages, found)
        assert sent(out, fit(out, budget, None, profile)) == out


@given(conversations(), named_parts(), PROFILES, st.integers(0, 900))
def test_no_tool_group_is_split_and_the_newest_user_message_stays(
    talk: list[Body], parts: WindowParts, profile: CapabilityProfile, budget: int
) -> None:
    found = fit(talk, budget, parts, profile)
    if found.excess_tokens:
        return
    out = sent(talk, found)
    assert unpaired(out) <= unpaired(talk)
    asked = questions_in(talk)
    if asked:
        newest = questions_in(out)[-1]
        own = json.loads(newest[newest.index('{"kind"') :])["message"] if parts.virtual_files else newest
        assert own.endswith(asked[-1])
    if not parts.has_any:
        kept_ones = iter(talk)
        assert all(message in kept_ones for message in out)


@given(conversations(), named_parts(), PROFILES, st.integers(0, 900))
def test_the_selection_is_whole_and_the_system_text_is_shortened_only_where_that_is_allowed(
    talk: list[Body], parts: WindowParts, profile: CapabilityProfile, budget: int
) -> None:
    own = system(text_of(100, "system"))
    found = fit([own, *talk], budget, parts, profile)
    if found.excess_tokens:
        return
    out = sent([own, *talk], found)
    if parts.selection is not None and parts.selection.strip():
        assert any(parts.selection in str(message["content"]) for message in out)
    if not profile.may_shorten_system:
        assert out[0] == own


@given(TEXT, st.integers(0, 300), st.integers(0, 100))
def test_a_shortened_text_fits_and_a_larger_share_holds_its_beginning(text: str, share: int, more: int) -> None:
    for shorten, holds in ((head, str.startswith), (tail, str.endswith)):
        small = shorten(text, share, bytes_over_four)
        assert bytes_over_four(small) <= share
        assert holds(text, small)
    assert head(text, share + more, bytes_over_four).startswith(head(text, share, bytes_over_four))


@given(conversations(), named_parts(), st.integers(1, 400), st.integers(0, 400))
def test_parts_that_a_smaller_budget_keeps_a_larger_one_keeps_too(
    talk: list[Body], parts: WindowParts, budget: int, more: int
) -> None:
    newest = [user("the question")]
    small, large = (fit(newest, tokens, parts) for tokens in (budget, budget + more))
    if not small.excess_tokens:
        assert not large.excess_tokens
        less, most = (sum(len(str(m["content"])) for m in sent(newest, found)) for found in (small, large))
        assert less <= most


@given(conversations(), st.integers(0, 600))
def test_a_cut_is_legal_and_leaves_out_no_more_than_a_distance_of_anchors_beyond_what_is_needed(
    talk: list[Body], room: int
) -> None:
    steps = steps_of(transcript_of(talk).messages)
    cut = cut_of(steps, Room(room))
    legal = [each for each in range(len(steps.legal)) if steps.legal[each] == each]
    fitting = [each for each in legal if steps.tokens - steps.tokens_before[each] <= room]
    assert cut in (fitting or legal[-1:])
    # The first cut behind the anchor that follows: no other one may be passed over.
    beyond = steps.tokens - room + apart(room)
    assert all(steps.tokens_before[each] < beyond for each in legal if each < cut)


@given(st.randoms(use_true_random=False), st.integers(1_000, 100_000), st.booleans())
def test_some_tokens_more_or_less_around_a_conversation_do_not_move_its_beginning(
    rng: Random, room: int, has_calls: bool
) -> None:
    """The system text, the named parts, the longest answer and the model's factor differ from request to request."""
    jitter, talk, cuts = room // 100, list[Message](), list[int]()
    for number in range(150):
        talk.append(said("user", rng.randrange(room // 100, room // 50)))
        if has_calls:
            call = f"{number}"
            talk += [said("assistant", 20, (call,)), said("tool", rng.randrange(room // 50), (), (call,))]
        cuts.append(cut_of(steps_of(talk), Room(room - rng.randrange(jitter))))
        talk.append(said("assistant", rng.randrange(room // 100)))
    anchors = sum(message.tokens for message in talk) // apart(room - jitter) + 1
    if apart(room - jitter) == apart(room):
        assert len(set(cuts)) <= anchors
        assert sum(one != other for one, other in pairwise(cuts)) <= 2 * anchors
