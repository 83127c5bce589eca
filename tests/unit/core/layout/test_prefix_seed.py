import orjson
import pytest

from proxy.core.layout.layout import PrefixSettings
from proxy.core.layout.prefix_seed import seed_of, slots_of
from proxy.core.providers import PROFILES, pessimistic
from proxy.core.wire.json_body import parse_members
from tests.examples import for_every

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


@for_every(
    [
        ("anthropic", {"temperature": 0.5}),
        ("anthropic", {"user": "u"}),
        ("anthropic", {"tool_choice": "auto"}),
        ("anthropic", {"thinking": {"type": "disabled"}}),
        ("anthropic", {"reasoning_effort": None}),
        ("openai", {"tool_choice": "none"}),
        ("openai", {"parallel_tool_calls": True}),
        ("none", {"reasoning_effort": "high"}),
    ]
)
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
