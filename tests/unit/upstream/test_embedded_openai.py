from proxy.protocol.providers import DEEPSEEK, NONE, OPENAI, OPENAI_EXPLICIT
from proxy.protocol.request.tokens import bytes_over_four
from tests.unit.upstream.embedded_client import MARK, SEARCH, Provider, called, part, read, result, system, user


class TestOpenAI:
    def test_a_prefix_inside_one_long_message_is_read_in_steps(self):
        provider = Provider(OPENAI)
        text = "".join(f"line {i} of the file\n" for i in range(1000))
        first = provider.chat(system(), user(text + "old end " * 50))
        second = provider.chat(system(), user(text + "new end " * 50))
        cached = second.usage["prompt_tokens_details"]["cached_tokens"]
        shared = bytes_over_four(text)
        assert first.usage["prompt_tokens_details"]["cached_tokens"] == 0
        assert cached % 128 == 0
        assert shared - 256 < cached <= shared + 64

    def test_marker_fields_are_unknown_parameters(self):
        for message in (user(cache_control=MARK), user([part("x", cache_control=MARK)])):
            reply = Provider(OPENAI).chat(message)
            assert reply.status == 400
            assert reply.json["error"]["code"] == "unknown_parameter"
            assert reply.json["error"]["param"].startswith("messages[0]")
        assert Provider(OPENAI).chat(user(), tools=[{**SEARCH, "cache_control": MARK}]).status == 400
        assert Provider(OPENAI).chat(user(), cache_control=MARK).status == 400
        assert Provider(OPENAI).chat(user([part("x", prompt_cache_breakpoint={"mode": "explicit"})])).status == 400

    def test_what_is_kept_apart(self):
        provider = Provider(OPENAI)
        messages = [user("word " * 2000)]
        provider.chat(*messages)
        assert read(provider.chat(*messages, tool_choice="none")) > 0
        assert read(provider.chat(*messages, prompt_cache_key="k")) == 0
        assert read(provider.chat(*messages, response_format={"type": "json_object"})) == 0


class TestOpenAIExplicit:
    point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    long = "word " * 1200

    def test_implicit_mode_appends_a_growing_chat(self):
        provider = Provider(OPENAI_EXPLICIT)
        first = provider.chat(system(self.long), user("one"))
        details = first.usage["prompt_tokens_details"]
        assert details["cache_write_tokens"] == first.usage["prompt_tokens"] - 3
        second = provider.chat(system(self.long), user("one"), called("a"), result("a"))
        assert read(second) == details["cache_write_tokens"]
        assert second.usage["prompt_tokens_details"]["cache_write_tokens"] < 60

    def test_a_marked_static_prefix_is_shared(self):
        provider = Provider(OPENAI_EXPLICIT)
        head = system([part(self.long, **self.point)])
        provider.chat(head, user("one"))
        assert read(provider.chat(head, user("two"))) > 1400
        plain_head = Provider(OPENAI_EXPLICIT)
        plain_head.chat(system(self.long), user("one"))
        assert read(plain_head.chat(system(self.long), user("two"))) == 0

    def test_explicit_mode_reads_and_writes_at_breakpoints_only(self):
        provider = Provider(OPENAI_EXPLICIT)
        options = {"prompt_cache_options": {"mode": "explicit"}}
        unmarked = provider.chat(system(self.long), user("one"), **options)
        assert unmarked.usage["prompt_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
        marked = [system(self.long), user([part("one", **self.point)])]
        provider.chat(*marked, **options)
        assert read(provider.chat(*marked, user("more"), **options)) > 1400
        assert read(provider.chat(system(self.long), user("one"), user("more"), **options)) == 0

    def test_refusals(self):
        for message in (
            user(cache_control=MARK),
            {"role": "assistant", "content": [part("x", **self.point)]},
            user([part("x", prompt_cache_breakpoint={"mode": "implicit"})]),
        ):
            assert Provider(OPENAI_EXPLICIT).chat(message).status == 400
        for options in ({"mode": "auto"}, {"ttl": "5m"}, "implicit"):
            assert Provider(OPENAI_EXPLICIT).chat(user(), prompt_cache_options=options).status == 400


class TestDeepSeek:
    def test_hit_and_miss_add_up_and_markers_are_ignored(self):
        provider = Provider(DEEPSEEK)
        messages = [user("word " * 500, cache_control=MARK)]
        assert provider.chat(*messages).usage["prompt_cache_hit_tokens"] == 0
        usage = provider.chat(user("word " * 500)).usage
        assert usage["prompt_cache_hit_tokens"] == 512
        assert usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"] == usage["prompt_tokens"]
        assert "prompt_tokens_details" not in usage

    def test_the_answer_that_comes_back_is_read(self):
        provider = Provider(DEEPSEEK, output_tokens=600)
        question = user("word " * 500)
        answer = provider.chat(question).json["choices"][0]["message"]
        del answer["refusal"]
        usage = provider.chat(question, answer, user("And then?")).usage
        output = bytes_over_four(answer["content"])
        assert usage["prompt_cache_hit_tokens"] >= (629 + output) // 128 * 128

    def test_user_ids_are_apart(self):
        provider = Provider(DEEPSEEK)
        provider.chat(user("word " * 500))
        assert provider.chat(user("word " * 500), user_id="u").usage["prompt_cache_hit_tokens"] == 0


def test_a_provider_without_a_cache_reports_none():
    usage = Provider(NONE).chat(user("hello", cache_control=MARK)).usage
    assert set(usage) == {"prompt_tokens", "completion_tokens", "total_tokens"}
