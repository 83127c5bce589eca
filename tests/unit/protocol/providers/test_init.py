"""The profiles agree with themselves."""

import re
from dataclasses import fields, replace

from proxy.protocol.providers import PROFILES, CacheProfile, Dialect, Family, MarkPlace, optimistic, pessimistic
from tests.examples import for_every

ALL = PROFILES.values()
NAMES = {field.name for field in fields(CacheProfile)}
each = for_every(ALL)


def test_every_provider_of_the_reference_is_there() -> None:
    assert set(PROFILES) == {
        "anthropic", "bedrock", "vertex", "foundry", "openai", "openai-explicit", "azure", "azure-explicit", "gemini",
        "vertex-gemini", "deepseek", "xai", "mistral", "groq", "kimi", "glm", "qwen", "qwen-implicit", "minimax",
        "minimax-passive", "fireworks", "together", "openrouter-anthropic", "openrouter-openai",
        "openrouter-openai-explicit", "openrouter-gemini", "openrouter-deepseek", "openrouter-xai", "vllm", "sglang",
        "llamacpp", "ollama",
        "none",
    }  # fmt: skip


@each
def test_a_marker_dialect_belongs_to_the_marker_family(profile: CacheProfile) -> None:
    assert (profile.dialect is Dialect.NONE) == (profile.family is not Family.MARKER)
    assert 0 <= profile.implicit_marks < profile.max_marks
    assert not profile.tool_mark or profile.dialect is Dialect.CACHE_CONTROL
    on_messages = profile.result_mark is not MarkPlace.PART
    assert on_messages or profile.dialect in (Dialect.PART_CACHE_CONTROL, Dialect.BREAKPOINT)
    assert not profile.dialect.key or on_messages == profile.message_mark == (profile.dialect is Dialect.CACHE_CONTROL)
    assert not profile.body_mark or profile.message_mark


@each
def test_prices_and_lives_make_sense(profile: CacheProfile) -> None:
    assert profile.name == "none" or 0 <= profile.read < 1 <= profile.write <= profile.write_long
    assert profile.life_s > 0
    assert profile.long_life_s == 0 or profile.long_life_s > profile.life_s
    assert profile.min_tokens >= 1
    assert profile.step >= 1
    if profile.family is Family.GRID:
        assert profile.write == 1.0 or profile.meters_writes


@each
def test_a_fact_has_a_source_with_a_place_to_look_at(profile: CacheProfile) -> None:
    if profile.name == "none":
        return
    assert any(re.search(r"https://\S+|litellm \d|openai \d", source) for source in profile.sources)
    assert all(unknown.why for unknown in profile.unknowns)


@each
def test_unknowns_are_fields_and_have_other_values(profile: CacheProfile) -> None:
    named = [unknown.field for unknown in profile.unknowns]
    assert set(named) <= NAMES
    assert len(set(named)) == len(named)
    for unknown in profile.unknowns:
        assert unknown.pessimistic != unknown.optimistic or unknown.pessimistic != getattr(profile, unknown.field)
        assert isinstance(unknown.pessimistic, type(getattr(profile, unknown.field)) | int)
    for settled in (pessimistic(profile), optimistic(profile)):
        assert settled.unknowns == ()
        assert hash(settled) == hash(replace(settled, sources=()))
    if profile.unknowns:
        assert pessimistic(profile) != optimistic(profile)


@each
def test_members_that_break_stand_in_one_place(profile: CacheProfile) -> None:
    for settled in (profile, pessimistic(profile)):
        breaking = settled.breaking
        before = {*breaking.before_tools}
        assert not before & {*breaking.before_system, *breaking.before_messages} or settled is not profile
        assert not {"messages", "tools", "model", "stream"} & {
            *before, *breaking.before_system, *breaking.before_messages,
        }  # fmt: skip


def test_rules_that_a_renderer_reads() -> None:
    marks = {p.name: (p.tool_mark, p.result_mark, p.slots) for p in ALL if p.family is Family.MARKER}
    assert marks["anthropic"] == (True, MarkPlace.MESSAGE, 4)
    assert marks["bedrock"] == (True, MarkPlace.EITHER, 4)
    assert marks["qwen"] == (False, MarkPlace.PART, 4)
    assert marks["openai-explicit"] == (False, MarkPlace.PART, 3)


def test_routing_keys() -> None:
    keys = {p.name: (p.routing.place, p.routing.name) for p in ALL if p.routing is not None and p.routing.is_needed}
    assert keys["openai"] == keys["azure"] == keys["mistral"] == keys["kimi"] == ("body", "prompt_cache_key")
    assert keys["xai"] == ("header", "x-grok-conv-id")
    assert keys["openrouter-anthropic"] == ("body", "session_id")
    assert {"openai-explicit", "anthropic", "groq", "vllm"}.isdisjoint(keys)
    # Groq answers 400 to prompt_cache_key.
    assert PROFILES["groq"].routing is None


def test_claude_takes_tool_calls_only_beside_declared_tools() -> None:
    declaring = {profile.name for profile in ALL if profile.declares_tools}
    assert declaring == {"anthropic", "foundry", "bedrock", "vertex", "openrouter-anthropic"}
    assert declaring == {profile.name for profile in ALL if profile.thinks_in_calls}


def test_what_is_not_known_gets_the_form_of_the_strictest() -> None:
    begins = {profile.name for profile in ALL if profile.begins_with_user}
    gemini = {"gemini", "vertex-gemini", "openrouter-gemini"}
    careful = {"none", "vllm", "sglang", "llamacpp", "ollama"}
    assert begins == {"bedrock", "openrouter-anthropic", *gemini, *careful}
    assert {profile.name for profile in ALL if profile.answers_results} == {"mistral", *careful}
    assert {profile.name for profile in ALL if profile.plain_call_ids} == {"mistral", *careful}
