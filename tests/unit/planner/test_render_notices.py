"""Later system messages: every layout and its markers hold wherever an upstream puts them."""

import json
import random
from dataclasses import replace

import pytest

from proxy.kit.errors import UpstreamRejected
from proxy.kit.modes import Mode, Reason
from proxy.planner.plan import Plan
from proxy.planner.render import stays
from proxy.planner.shadow import Deviation
from proxy.protocol.caches import validate
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, GEMINI, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded.provider import Provider, lay_out
from proxy.upstream.embedded.turns import BlockMaker, TurnReader, read_chat
from tests.examples import sampled
from tests.fidelity.chats import File
from tests.talk import MARK, TINY, Body, Talk, assistant, chat, lines, marks_in, read, shown, system, text_part, user
from tests.unit.planner.shadow.test_deviations import PAGE, Truth

HEAD = system(lines(120, "rule"))
HOISTS = replace(PAGE, hoists_system=True)


def conversation(turns: int, *, notices: int = 3, last_is_notice: bool = False) -> list[Body]:
    """A conversation with a notice behind every third turn (``notices`` of them)."""
    found: list[Body] = [HEAD]
    for number in range(turns):
        found += [user(lines(30, f"q{number}")), assistant(lines(6, f"a{number}"))]
        if number % 3 == 1 and number // 3 < notices:
            found.append(system(f"The budget changes for the {number}. time."))
    found.append(user(lines(30, f"q{turns}")))
    return [*found, system("Keep to the rules.")] if last_is_notice else found


def is_refused(plan: Plan, profile: CacheProfile) -> str | None:
    """Why a provider of either kind would refuse the request."""
    for rules in (profile, replace(profile, hoists_system=True)):
        reader = TurnReader(BlockMaker(bytes_over_four, cuts=False), rules)
        prompt = lay_out(read_chat(plan.body, reader), rules, "account")
        complaint = validate(prompt, rules)
        if complaint is not None:
            return complaint
    return None


@pytest.mark.parametrize("profile", [TINY, replace(TINY, hoists_system=True)], ids=["kept", "hoisted"])
@pytest.mark.parametrize("last_is_notice", [False, True])
def test_markers_are_in_order_under_either_reading(profile: CacheProfile, last_is_notice: bool) -> None:
    talk = Talk(profile=profile)
    for turns in range(1, 9):
        messages = conversation(turns, last_is_notice=last_is_notice)
        plan = talk.send(chat(*messages))
        places = [int(place.split(".")[0]) for place in marks_in(json.loads(plan.body))]
        assert places
        assert is_refused(plan, profile) is None


@pytest.mark.parametrize("profile", [TINY, replace(TINY, hoists_system=True)], ids=["kept", "hoisted"])
def test_the_newest_of_many_system_messages_carries_a_marker(profile: CacheProfile) -> None:
    """The output of a client's tools comes back as system messages; nobody says anything in between."""
    talk, messages = Talk(profile=profile), [HEAD, user("Mend it.")]
    for step in range(8):
        messages += [assistant(lines(5, f"a{step}")), system(lines(20, f"output {step}"))]
        plan = talk.send(chat(*messages))
        assert f"{len(messages) - 1}.0" in marks_in(json.loads(plan.body))
    assert plan.predicted.read > 0.5 * plan.predicted.total


@pytest.mark.parametrize("seed", sampled(range(12), 3))
def test_lives_are_in_order_wherever_system_messages_are_put(seed: int) -> None:
    """A client that pauses gets markers for an hour; whatever it marks itself, at either life, stays acceptable."""
    rng = random.Random(seed)
    talk = Talk(profile=TINY, mode=rng.choice([Mode.MARK, Mode.TIER]))
    is_marking = rng.random() < 0.5
    for turns in range(1, 14):
        talk.now += rng.choice([20, 20, 900])
        messages = conversation(turns, notices=9, last_is_notice=rng.random() < 0.3)
        if is_marking:
            life = rng.choice(["5m", "1h"])
            messages[0] = system([text_part(lines(120, "rule"), cache_control={"type": "ephemeral", "ttl": life})])
            if messages[-1]["role"] == "user":
                messages[-1] = user([text_part(str(messages[-1]["content"]), **MARK)])
        plan = talk.send(chat(*messages))
        assert is_refused(plan, TINY) is None, marks_in(json.loads(plan.body))


def test_the_clients_own_marker_on_a_notice_stays_in_mode_mark() -> None:
    talk = Talk(profile=TINY, mode=Mode.MARK)
    notice = system([text_part("A notice.", **MARK)])
    messages = [HEAD, user(lines(30, "q")), assistant("a"), notice, user("and?")]
    plan = talk.send(chat(*messages))
    assert "3.0" in marks_in(json.loads(plan.body))


@pytest.mark.parametrize("hoists", [False, True], ids=["kept", "hoisted"])
def test_what_a_route_does_is_learnt_from_its_reports(hoists: bool) -> None:
    truth = Truth(HOISTS if hoists else PAGE, PAGE)
    for turns in range(1, 14):
        truth.send(*conversation(turns, notices=9))
    assert truth.believed().hoists_system is hoists
    assert truth.seen.count(Deviation.MOVED_SYSTEM) == (2 if hoists else 0)
    assert set(truth.seen) <= {Deviation.AS_EXPECTED, Deviation.MOVED_SYSTEM}


def test_what_was_learnt_is_unlearnt_by_one_report_that_contradicts() -> None:
    truth = Truth(HOISTS, PAGE)
    for turns in range(1, 10):
        truth.send(*conversation(turns, notices=9))
    assert truth.believed().hoists_system
    truth.rules = PAGE
    truth.forget()
    for turns in range(10, 20):
        truth.send(*conversation(turns, notices=9))
    assert not truth.believed().hoists_system
    assert truth.seen[-1] == Deviation.AS_EXPECTED


def by_itself(answers: int) -> list[Body]:
    """An agent that goes on by itself: each answer is followed by a system message with what its tools have said."""
    later = (each for n in range(answers) for each in (assistant(lines(90, f"a{n}")), system(lines(9, f"out {n}"))))
    return [HEAD, user(lines(30, "q")), *later]


def test_the_place_of_notices_is_known_after_a_night_too() -> None:
    truth = Truth(HOISTS, PAGE)
    for answers in range(1, 5):
        truth.send(*by_itself(answers))
    truth.talk.now += 40_000
    assert truth.believed().hoists_system


def test_a_documented_place_is_doubted_later() -> None:
    documented = replace(PAGE, mid_system=True)
    truth = Truth(replace(documented, hoists_system=True), documented)
    for turns in range(1, 16):
        truth.send(*conversation(turns, notices=9))
    assert truth.seen.count(Deviation.MOVED_SYSTEM) == 3


def test_a_plan_says_that_a_hoisted_notice_breaks_what_stands_behind_it() -> None:
    talk = Talk(profile=replace(TINY, hoists_system=True))
    reasons = [talk.send(chat(*conversation(turns, notices=9))).reason for turns in range(1, 7)]
    # Behind the second and the fifth turn a notice is new.
    assert [reason is Reason.HOISTED_NOTICE for reason in reasons] == [False, True, False, False, True, False]


def test_a_client_that_says_something_new_each_time_is_not_marked_behind_it() -> None:
    """Where it is hoisted, nothing behind a message that tells the time is ever read again."""

    def messages(turns: int) -> list[Body]:
        return [*conversation(turns, notices=0), system(f"It is {turns} o'clock.")]

    costs = {}
    for hoists in (False, True):
        profile = replace(ANTHROPIC, hoists_system=hoists)
        talk, provider = Talk(profile=profile), Provider(profile, bytes_over_four)
        written = 0
        for turns in range(2, 12):
            talk.now += 20
            plan = talk.send(chat(*messages(turns)))
            reply = provider.chat(plan.body, "a", talk.now, 1)
            reply.store(talk.now)
            written += reply.bill.write if turns > 6 else 0
        costs[hoists] = written
    assert costs[True] == 0


@pytest.mark.parametrize("profile", [TINY, DEEPSEEK, GEMINI], ids=lambda profile: profile.name)
def test_a_new_order_keeps_notices_at_their_place(profile: CacheProfile) -> None:
    """Files move, the system messages between the turns do not."""
    talk = Talk(profile=replace(profile, hoists_system=True, min_tokens=1))
    moved = False
    for number in range(8):
        files = [File("a.py", lines(60, "stable")), File("b.py", lines(20, f"edited {number}"))]
        turns = conversation(3 + number, notices=9)[1:]
        body = chat(HEAD, *shown(*files), *turns)
        plan = talk.send(body)
        sent = json.loads(plan.body)["messages"]
        moved = moved or len(sent) > len(body["messages"])
        order = [_text(m) for m in sent if _text(m) in {_text(t) for t in turns}]
        assert order == [_text(t) for t in turns]
    assert moved


def _text(message: Body) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def test_an_upstream_that_hoists_refuses_lives_out_of_order() -> None:
    """The provider in this process is strict: else the tests above would show nothing."""
    rules = HOISTS
    long = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    messages = [HEAD, user([text_part(lines(99), **long)]), assistant("a"), system([text_part("n", **MARK)])]
    body = json.dumps(chat(*messages)).encode()
    Provider(PAGE, bytes_over_four).chat(body, "a", 1.0, 1)
    with pytest.raises(UpstreamRejected, match="must not come after"):
        Provider(rules, bytes_over_four).chat(body, "a", 1.0, 1)


def chance_of_staying(said: str, seen: float = 0.0, changed: float = 0.0) -> float:
    """P(the notices stay) of a conversation in short: u and a are turns, n is a notice."""
    turns = {"u": user("q"), "a": assistant("a"), "n": system("A notice.")}
    messages = read([HEAD, *(turns[one] for one in said)])
    return stays(messages, [at for at, one in enumerate(said, 1) if one == "n"], seen, changed)


def test_a_conversation_with_notices_in_every_turn_gets_another_one() -> None:
    seldom, often = chance_of_staying("unau" + "au" * 8), chance_of_staying("unau" + "anu" * 8)
    assert seldom > 0.8
    assert often < 0.3
    # Two requests: one has brought an answer, and one asks for it.
    assert chance_of_staying("unau") == 0.5
    # Two notices in front of the same answer came with one request.
    assert chance_of_staying("unnau" + "au" * 8) > 0.95 * seldom


def test_what_a_session_has_shown_counts_for_more_than_its_conversation() -> None:
    often = "unau" + "anu" * 8
    assert chance_of_staying(often, seen=40.0) > 0.7 > 0.3 > chance_of_staying(often)
    assert chance_of_staying("unau" + "au" * 8, seen=40.0, changed=40.0) < 0.1
