"""Usage from every provider's dialect, as their documentation and litellm 1.109 show them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.protocol.response.outcome import AnswerFacts
from proxy.protocol.response.usage import Usage, usage_of
from tests.examples import for_every

REPORTS = {
    "openai chat": (
        {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
         "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
         "completion_tokens_details": {"reasoning_tokens": 120}}, Usage(2006, 300, read=1920),
    ),
    "openai 5.6: write tokens in the details": (
        {"prompt_tokens": 7540, "completion_tokens": 10, "total_tokens": 7550,
         "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 7537}}, Usage(7540, 10, write_5m=7537),
    ),
    "openai 5.6: 12-hour writes": (
        {"input_tokens": 5000, "output_tokens": 7, "total_tokens": 5007,
         "input_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 3000,
                                  "cache_write_tokens_details": {"ttl_30m_tokens": 1000, "ttl_12h_tokens": 2000}}},
        Usage(5000, 7, read=1000, write_5m=1000, write_1h=2000),
    ),
    "openai responses": (
        {"input_tokens": 36, "input_tokens_details": {"cached_tokens": 16}, "output_tokens": 87,
         "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 123}, Usage(36, 87, read=16),
    ),
    "openai embeddings": ({"prompt_tokens": 8, "total_tokens": 8}, Usage(8, 0)),
    "vllm: details are null": (
        {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "prompt_tokens_details": None},
        Usage(10, 2),
    ),
    "llama.cpp: timings": (
        {"cache_n": 90, "prompt_n": 10, "predicted_n": 4, "prompt_ms": 1.5}, Usage(100, 4, read=90),
    ),
    "xai: reasoning stands in the total alone": (
        {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 420,
         "prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens_details": {"reasoning_tokens": 300}},
        Usage(100, 320, read=64),
    ),
    "gemini through its openai surface: hidden thinking": (
        {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}, Usage(20, 603),
    ),
    "gemini": (
        {"promptTokenCount": 5000, "cachedContentTokenCount": 4096, "candidatesTokenCount": 198,
         "thoughtsTokenCount": 405, "totalTokenCount": 5603}, Usage(5000, 603, read=4096),
    ),
    "deepseek": (
        {"prompt_tokens": 3776, "completion_tokens": 5, "total_tokens": 3781, "prompt_cache_hit_tokens": 3712,
         "prompt_cache_miss_tokens": 64, "prompt_tokens_details": {"cached_tokens": 3712}}, Usage(3776, 5, read=3712),
    ),
    "deepseek: hits and misses only": (
        {"prompt_cache_hit_tokens": 128, "prompt_cache_miss_tokens": 2, "completion_tokens": 1},
        Usage(130, 1, read=128),
    ),
    "kimi: both spellings of the same hit": (
        {"prompt_tokens": 2989, "completion_tokens": 1, "total_tokens": 2990, "cached_tokens": 2989,
         "prompt_tokens_details": {"cached_tokens": 2989}}, Usage(2989, 1, read=2989),
    ),
    "kimi: writes": (
        {"prompt_tokens": 900, "completion_tokens": 1, "cached_tokens": 256, "cache_write_tokens": 600},
        Usage(900, 1, read=256, write_5m=600),
    ),
    "qwen": (
        {"prompt_tokens": 1250, "completion_tokens": 30, "total_tokens": 1280,
         "prompt_tokens_details": {"cached_tokens": 0, "cache_type": "ephemeral", "cache_creation_input_tokens": 1235,
                                   "cache_creation": {"ephemeral_5m_input_tokens": 1235}}},
        Usage(1250, 30, write_5m=1235),
    ),
    "openrouter": (
        {"prompt_tokens": 400, "completion_tokens": 1, "total_tokens": 401, "cost": 0.01,
         "prompt_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 250}},
        Usage(400, 1, read=100, write_5m=250),
    ),
    "anthropic through litellm: every figure twice": (
        {"prompt_tokens": 2098, "completion_tokens": 9, "total_tokens": 2107,
         "prompt_tokens_details": {"cached_tokens": 1800, "cache_creation_tokens": 248, "cache_write_tokens": 248,
                                   "cache_creation_token_details": {"ephemeral_5m_input_tokens": 48,
                                                                    "ephemeral_1h_input_tokens": 200}},
         "cache_read_input_tokens": 1800, "cache_creation_input_tokens": 248},
        Usage(2098, 9, read=1800, write_5m=48, write_1h=200),
    ),
    "a gateway that counts a chat prompt exclusively: its own total says so": (
        {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 2107, "cache_read_input_tokens": 1800,
         "cache_creation_input_tokens": 248}, Usage(2098, 9, read=1800, write_5m=248),
    ),
    "anthropic": (
        {"input_tokens": 50, "cache_read_input_tokens": 1800, "cache_creation_input_tokens": 248,
         "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100}, "output_tokens": 9,
         "service_tier": "standard"}, Usage(2098, 9, read=1800, write_5m=148, write_1h=100),
    ),
    "anthropic: writes without a life count as those of the shorter one": (
        {"input_tokens": 1, "cache_creation_input_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 4}},
        Usage(10, 0, write_5m=5, write_1h=4),
    ),
    "more cached than prompt: the prompt leaves it out": (
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 25, "cache_write_tokens": 5},
         "completion_tokens": 1, "total_tokens": 11},
        Usage(40, 1, read=25, write_5m=5),
    ),
    "anthropic without any caching": ({"input_tokens": 50, "output_tokens": 9}, Usage(50, 9)),
    "anthropic with compaction": (
        {"input_tokens": 23000, "output_tokens": 1000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0,
         "iterations": [{"type": "compaction", "input_tokens": 180000, "output_tokens": 3500},
                        {"type": "message", "input_tokens": 23000, "output_tokens": 1000},
                        {"type": "advisor_message", "input_tokens": 999, "output_tokens": 999}]}, Usage(203000, 4500),
    ),
    "bedrock converse": (
        {"inputTokens": 12, "outputTokens": 4, "totalTokens": 2016, "cacheReadInputTokens": 1000,
         "cacheWriteInputTokens": 1000,
         "cacheDetails": [{"ttl": "1h", "inputTokens": 600}, {"ttl": "5m", "inputTokens": 400}]},
        Usage(2012, 4, read=1000, write_5m=400, write_1h=600),
    ),
    "bedrock invoke metrics": (
        {"inputTokenCount": 3, "outputTokenCount": 2, "cacheReadInputTokenCount": 7, "cacheWriteInputTokenCount": 5},
        Usage(15, 2, read=7, write_5m=5),
    ),
}  # fmt: skip


@for_every(REPORTS)
def test_dialect(name):
    report, expected = REPORTS[name]
    assert usage_of(report) == expected
    assert usage_of({"id": "x", "object": "chat.completion", "choices": [], "usage": report}) == expected


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "response.completed", "response": {"id": "r", "usage": {"input_tokens": 5, "output_tokens": 2}}},
        {"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 5, "completion_tokens": 2}}]},
        {"choices": [], "x_groq": {"id": "g", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}},
        {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}},
        {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 2}}},
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 5, "outputTokenCount": 2}},
    ],
)
def test_usage_is_found_wherever_providers_put_it(payload):
    assert usage_of(payload) == Usage(5, 2)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"usage": None},
        {"usage": {}},
        {"usage": "many"},
        {"choices": [{"delta": {"content": "hi"}}], "usage": None},
        {"usage": {"type": "duration", "seconds": 3}},
        {"choices": "x", "response": [], "message": 3},
    ],
)
def test_nothing_reported(payload):
    assert usage_of(payload) is None


@for_every([-5, "12", 1.5, None, [], {}, True, float("nan"), float("inf"), 10**30])
def test_what_is_no_count_is_none(bad):
    usage = usage_of({"prompt_tokens": bad, "completion_tokens": bad, "prompt_tokens_details": {"cached_tokens": bad}})
    assert usage == Usage(0, 0)
    assert not usage.is_whole
    for part in ({"prompt_tokens": bad, "completion_tokens": 9}, {"prompt_tokens": 9, "completion_tokens": bad}):
        assert not usage_of(part).is_whole
    assert not usage_of({"input_tokens": 9, "output_tokens": bad, "cache_read_input_tokens": 4}).is_whole


@for_every(
    [
        {"promptTokenCount": 9},
        {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": "many"},
        {"inputTokens": 9},
        {"inputTokenCount": 9, "cacheReadInputTokenCount": 4},
        {"cache_n": 4, "prompt_n": 5},
        {"prompt_tokens": 9, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 30}},
    ]
)
def test_a_report_that_leaves_the_answer_out_is_not_whole(report):
    assert not usage_of(report).is_whole


@for_every(
    [
        {"prompt_tokens": 9, "completion_tokens": 0},
        {"prompt_tokens": 9, "total_tokens": 9},
        {"input_tokens": 9, "output_tokens": 0, "cache_read_input_tokens": 0},
        {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 9},
        {"promptTokenCount": 9, "totalTokenCount": 9},
        {"inputTokens": 9, "outputTokens": 0},
    ]
)
def test_an_answer_may_have_no_tokens(report):
    assert usage_of(report) == Usage(9, 0, read=report.get("cache_read_input_tokens", 0))
    assert usage_of(report).is_whole


def test_anthropic_stream_counters_are_cumulative_and_the_split_comes_first():
    facts = AnswerFacts()
    cached = {"input_tokens": 50, "cache_read_input_tokens": 1800, "cache_creation_input_tokens": 248}
    split = {"cache_creation": {"ephemeral_5m_input_tokens": 48, "ephemeral_1h_input_tokens": 200}}
    for event in (
        {"type": "message_start", "message": {"usage": {**cached, **split, "output_tokens": 1}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 40}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {**cached, "output_tokens": 77}},
        {"type": "message_stop"},
    ):
        facts.learn(event)
    assert facts.outcome().usage == Usage(2098, 77, read=1800, write_5m=48, write_1h=200)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
def test_what_a_stream_tells_twice_of_its_prompt_is_one_prompt(guess, plain, read, written, repeats):
    """A gateway that has to begin the stream before it knows what was cached begins with all of the prompt."""
    facts = AnswerFacts()
    facts.learn({"type": "message_start", "message": {"usage": {"input_tokens": guess, "output_tokens": 1}}})
    told = {"input_tokens": plain, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    for _ in range(1 + repeats):
        facts.learn({"type": "message_delta", "usage": {**told, "output_tokens": 7}})
    usage = facts.outcome().usage
    assert usage == Usage(max(guess, plain + read + written), 7, read=read, write_5m=written)


@given(st.integers(1, 1000), st.integers(0, 10**6), st.integers(1001, 10**6), st.booleans())
def test_a_prompt_that_is_smaller_than_what_was_cached_leaves_it_out(prompt, read, written, sums_up):
    details = {"cached_tokens": read, "cache_write_tokens": written}
    report = {"prompt_tokens": prompt, "completion_tokens": 7, "prompt_tokens_details": details}
    report |= {"total_tokens": prompt + 7} if sums_up else {}
    assert usage_of(report) == Usage(prompt + read + written, 7, read=read, write_5m=written)


def test_openai_stream_with_running_usage():
    facts = AnswerFacts()
    facts.learn({"choices": [{"delta": {"content": "a"}}], "usage": None})
    assert facts.outcome().usage is None
    for done in (1, 2, 3):
        facts.learn({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": done}})
    assert facts.outcome().usage == Usage(10, 3)


NAMES = sorted({key for report, _ in REPORTS.values() for key in report})
DETAILS = sorted(
    {key for report, _ in REPORTS.values() for value in report.values() if isinstance(value, dict) for key in value}
)
counts = st.integers(0, 10**6)
junk = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
)
leaf = counts | junk
nested = st.dictionaries(st.sampled_from(DETAILS), leaf, max_size=3)
reports = st.dictionaries(st.sampled_from(NAMES), leaf | nested | st.lists(nested, max_size=2), max_size=8)
payloads = reports | st.dictionaries(
    st.sampled_from(["usage", "response", "message", "choices", "usageMetadata", "x_groq", "metadata", "id"]),
    reports | st.lists(reports, max_size=2) | junk | st.fixed_dictionaries({"usage": reports}),
    max_size=4,
)


relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_parts_add_up(usage):
    parts = (usage.read, usage.write_5m, usage.write_1h, usage.plain)
    assert all(part >= 0 for part in parts)
    assert sum(parts) == usage.prompt == usage.total
    assert usage.output >= 0


@relaxed
@given(payloads)
def test_any_report_gives_parts_that_add_up(payload):
    usage = usage_of(payload)
    if usage is not None:
        assert_parts_add_up(usage)


@relaxed
@given(st.lists(payloads, max_size=4))
def test_any_stream_gives_parts_that_add_up(events):
    facts = AnswerFacts()
    for event in events:
        facts.learn(event)
        usage = facts.outcome().usage
        if usage is not None:
            assert_parts_add_up(usage)


@relaxed
@given(counts, counts, counts, counts, counts)
def test_exclusive_and_inclusive_reports_of_one_exchange_agree(plain, read, short, long, output):
    split = {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}
    cached = {"cache_read_input_tokens": read, "cache_creation_input_tokens": short + long}
    exclusive = {"input_tokens": plain, "output_tokens": output, "cache_creation": split, **cached}
    prompt = plain + read + short + long
    details = {
        "cached_tokens": read, "cache_creation_tokens": short + long, "cache_creation_token_details": split,
    }  # fmt: skip
    sums = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    inclusive = {**sums, "prompt_tokens_details": details, **cached}
    expected = Usage(prompt, output, read, short, long)
    assert usage_of(exclusive) == expected
    assert usage_of(inclusive) == expected
