""" """

import orjson
import pytest

from proxy.kit.value import chain
from proxy.planner.layout import Layout, PrefixSettings, seed_of, slots_of
from proxy.protocol.providers import PROFILES, pessimistic
from proxy.protocol.request.element import Element, ElementKind, message_element, whole_element
from proxy.protocol.wire.json_body import parse_members
from tests.examples import for_every
from tests.fidelity.chats import File
from tests.talk import MARK, Body, assistant, calling, read, result, shown, system, text_part, user

SEED = PrefixSettings(b"scope" * 3, b"settings")


def elements(*messages: Body) -> list[Element]:
    return [message_element(m, i, "system" if m.role == "system" else "turn") for i, m in enumerate(read(messages))]


def tools(*digests: bytes) -> Element:
    (part,) = read([user("tool")])[0].parts
    return Element("tools", ElementKind.TOOLS, b"".join(digests), (part,) * len(digests), part.tokens * len(digests))


def test_a_position_for_each_part_and_running_ends() -> None:
    layout = Layout(
        SEED, elements(system("s"), user([text_part("a"), text_part("b" * 40)]), assistant(None), user("c"))
    )
    assert layout.starts == [0, 1, 3, 3]
    assert layout.ends == [5, 10, 20, 25]
    assert layout.total == 25
    assert [layout.last_position(i) for i in range(4)] == [0, 2, 2, 3]


def test_hashes_are_chained_over_all_before() -> None:
    one = Layout(SEED, elements(user("a"), assistant("b"), user("c")))
    other = Layout(SEED, elements(user("a"), assistant("B"), user("c")))
    assert [a == b for a, b in zip(one.prompt({}).hashes, other.prompt({}).hashes, strict=True)] == [True, False, False]
    assert all(len(h) >= 16 for h in one.prompt({}).hashes)


def test_tools_stand_before_the_settings() -> None:
    body = [tools(b"x", b"y"), *elements(user("a"))]
    one, other = (Layout(PrefixSettings(b"scope", settings), body) for settings in (b"1", b"2"))
    assert [a == b for a, b in zip(one.prompt({}).hashes, other.prompt({}).hashes, strict=True)] == [True, True, False]
    assert one.prompt({}).hashes[0] == chain(b"scope", body[0].parts[0].digest)


def test_what_breaks_tools_system_or_messages_stands_in_front_of_them() -> None:
    body = [tools(b"x"), *elements(system("s"), user("a"))]
    plain = Layout(PrefixSettings(b"scope", b""), body)
    seeds = (
        PrefixSettings(b"scope", b"", tools=b"1"),
        PrefixSettings(b"scope", b"", system=b"1"),
        PrefixSettings(b"scope", b"1"),
    )
    kept = [
        sum(a == b for a, b in zip(plain.prompt({}).hashes, Layout(s, body).prompt({}).hashes, strict=True))
        for s in seeds
    ]
    assert kept == [0, 1, 2]


def test_boundaries_of_the_providers_own_stand_where_messages_end() -> None:
    body = [
        tools(b"x", b"y"),
        *elements(
            system("s"), system("t"), user([text_part("a"), text_part("b")]), calling("1", "2"),
            result("1", "x"), result("2", "y"), assistant("done"), user("c"),
        ),
    ]  # fmt: skip
    prompt = Layout(PrefixSettings(b"scope", b"", is_implicit=True), body).prompt({0: "5m"})
    assert prompt.head_end == 3
    assert prompt.endings == (5, 9, 11)
    assert Layout(PrefixSettings(b"scope", b"", is_implicit=True), body[:2]).prompt({}).endings == (2,)
    assert Layout(SEED, body).prompt({}).endings == ()


def test_a_boundary_stands_before_an_acknowledgement() -> None:
    context, ack = read([user("files"), assistant("ok")])
    body = [whole_element("files", context, ack, (0, 1)), *elements(user("go"))]
    assert Layout(PrefixSettings(b"scope", b"", is_implicit=True), body).prompt({}).endings == (0, 2)


def test_a_run_of_calls_or_of_results_counts_once_for_the_look_back() -> None:
    layout = Layout(
        SEED,
        elements(
            user("a"), calling("1", "2", content="look"), result("1", "x"), result("2", "y"),
            calling("3"), result("3", "z"), user("b"),
        ),
    )  # fmt: skip
    # user | text, call+call | result+result | call | result | user
    assert layout.prompt({}).runs == (0, 1, 2, 2, 3, 3, 4, 5, 6)


def test_what_two_layouts_share_need_not_be_numbered_twice() -> None:
    turns = elements(
        system("s"), user("a"), calling("1", "2"), result("1", "x"), result("2", "y"), user("b"), user("c")
    )
    base, looked_up = Layout(SEED, turns), Layout(SEED, turns)
    looked_up.prompt({})
    other = [*turns[:4], *elements(result("2", "z"), user("b"))]
    orders = [turns, turns[:3], turns[:1], [], [*turns[:3], turns[6]], other, [turns[0], turns[5]], turns[::-1]]
    for order in orders:
        fresh = Layout(SEED, order)
        for adopted in (Layout(SEED, order, base), Layout(SEED, order, looked_up)):
            assert all(getattr(fresh, name) == getattr(adopted, name) for name in ("starts", "parts", "ends"))
            assert fresh.prompt({}) == adopted.prompt({})
    assert base.starts == Layout(SEED, turns).starts


def test_the_clients_markers_by_position() -> None:
    body = elements(system([text_part("s", **MARK)]), user([text_part("a"), text_part("b", **MARK)]))
    assert Layout(SEED, body).own_marks() == {0: "5m", 2: "5m"}


def test_a_context_message_goes_with_its_acknowledgement() -> None:
    message, ack = read(shown(File("a.py", "x\n")))
    element = whole_element("k", message, ack, (3, 4))
    assert (element.message, element.ack, element.tokens) == (3, 4, message.tokens + ack.tokens)
    assert element.digest != whole_element("k", ack, message, (3, 4)).digest


def test_no_boundary_where_a_message_has_no_content() -> None:
    seed = PrefixSettings(b"scope", b"", is_implicit=True)
    assert Layout(seed, elements({"role": "user", "content": None})).prompt({}).endings == ()
    assert Layout(seed, elements(user("a"), {"role": "user", "content": []})).prompt({}).endings == (0,)


ANTHROPIC, EXPLICIT = PROFILES["anthropic"], PROFILES["openai-explicit"]


def members(**rest: object):
    return parse_members(orjson.dumps({"model": "m", "messages": [], **rest}))


def seed(name: str, *, has_media: bool = False, **rest: object) -> PrefixSettings:
    return seed_of(members(**rest), PROFILES[name], b"scope", has_media=has_media)


@pytest.mark.parametrize(
    ("profile", "member", "place"),
    [
        ("anthropic", {"tool_choice": "none"}, "settings"),
        ("anthropic", {"reasoning_effort": "high"}, "settings"),
        ("anthropic", {"response_format": {"type": "json_object"}}, "system"),
        ("openai", {"response_format": {"type": "json_object"}}, "tools"),
        ("openai-explicit", {"prompt_cache_key": "k"}, "tools"),
        ("deepseek", {"user_id": "u"}, "tools"),
        ("vllm", {"cache_salt": "s"}, "tools"),
    ],
)
def test_a_member_changes_its_place_alone(profile: str, member: dict[str, object], place: str) -> None:
    plain, changed = seed(profile), seed(profile, **member)
    assert [n for n in ("scope", "tools", "system", "settings") if getattr(plain, n) != getattr(changed, n)] == [place]


@for_every([("openai-explicit", "prompt_cache_key"), ("deepseek", "user_id"), ("vllm", "cache_salt")])
def test_two_values_of_a_member_make_two_prefixes(profile: str, member: str) -> None:
    assert seed(profile, **{member: "a"}) != seed(profile, **{member: "b"})


@for_every(
    [
        ("anthropic", {"temperature": 0.5}), ("anthropic", {"user": "u"}), ("anthropic", {"tool_choice": "auto"}),
        ("anthropic", {"thinking": {"type": "disabled"}}), ("anthropic", {"reasoning_effort": None}),
        ("openai", {"tool_choice": "none"}), ("openai", {"parallel_tool_calls": True}),
        ("none", {"reasoning_effort": "high"}),
    ]
)  # fmt: skip
def test_what_breaks_nothing(profile: str, member: dict[str, object]) -> None:
    assert seed(profile, **member) == seed(profile)


def test_images_count_where_the_provider_says_so() -> None:
    assert seed("anthropic", has_media=True) != seed("anthropic")
    assert seed("openai", has_media=True) == seed("openai")


def test_thinking_breaks_the_tools_on_a_bad_day() -> None:
    plain, changed = (
        seed_of(members(**m), pessimistic(ANTHROPIC), b"scope", has_media=False)
        for m in ({}, {"reasoning_effort": "high"})
    )
    assert plain.tools != changed.tools


@for_every(
    [
        ("anthropic", {}, 4),
        ("anthropic", {"cache_control": {"type": "ephemeral"}}, 3),
        ("anthropic", {"cache_control": None}, 4),
        ("qwen", {"cache_control": {"type": "ephemeral"}}, 4),
        ("openai-explicit", {}, 3),
        ("openai-explicit", {"prompt_cache_options": {"mode": "implicit"}}, 3),
        ("openai-explicit", {"prompt_cache_options": {"mode": "explicit"}}, 4),
        ("openai-explicit", {"prompt_cache_options": "explicit"}, 3),
    ]
)
def test_slots_that_are_left(profile: str, member: dict[str, object], slots: int) -> None:
    assert slots_of(members(**member), PROFILES[profile]) == slots
    told = member.get("prompt_cache_options") == {"mode": "explicit"}
    assert seed(profile, **member).is_implicit is (profile == "openai-explicit" and not told)
