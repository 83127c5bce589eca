"""Which refusals of which providers mean that a request is too large for the model's context window."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.response.refusal import FORMS, Refusal, is_context_refusal, named_tokens, refusal_in
from tests.examples import for_every


def error(message: object, **more: object) -> object:
    """An error object as OpenAI has it."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}}


LONG = "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens."
VERTEX = (
    "Unable to submit request because the input token count is 1100000 but model only supports up to 1048576. "
    "Reduce the input token count and try again."
)
GEMINI = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."
RAW = '{"type":"error","error":{"message":"prompt is too long: 213462 tokens > 200000 maximum"}}'

# Each refusal has the tokens of the prompt that it names. Some name only the sum with the answer.
REFUSALS: dict[str, tuple[int, int | None, object]] = {
    "openai": (400, 204308, error(LONG, param="messages", code="context_length_exceeded")),
    "openai, only the message": (400, 204308, error(LONG)),
    "openai responses": (
        400, None,
        error("Your input exceeds the context window of this model. Please adjust your input and try again."),
    ),
    "openai, configured": (
        400, 300000,
        error("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens."),
    ),
    "azure": (400, 204308, {"error": {"code": "context_length_exceeded", "message": LONG, "status": 400}}),
    "deepseek": (
        400, 122942,
        error("This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 "
              "in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
              code="invalid_request_error"),
    ),
    "vllm": (
        400, 204308, {"object": "error", "message": LONG, "type": "BadRequestError", "param": None, "code": 400},
    ),
    "vllm, prompt and answer": (
        400, 2104,
        {"object": "error",
         "message": "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context "
                    "length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
         "type": "BadRequestError"},
    ),
    "vllm, decoder": (
        400, 10127,
        {"object": "error",
         "message": "The decoder prompt (length 10127) is longer than the maximum model length of"},
    ),
    "vllm, total": (
        400, 25938, error("The prompt (total length 25938) is too long to fit into the model (context length 4096)."),
    ),
    "openrouter": (
        400, None,
        error("This endpoint's maximum context length is 131072 tokens. However, you requested about 132463 tokens",
              code=400),
    ),
    "openrouter, its provider's": (400, 213462, error("Provider returned error", code=400, metadata={"raw": RAW})),
    "openrouter, its provider's text": (
        400, 204308, error("Provider returned error", code=400, metadata={"raw": LONG}),
    ),
    "groq": (
        400, None, error("Please reduce the length of the messages or completion.", code="context_length_exceeded"),
    ),
    "cerebras": (
        400, None,
        {"message": "Please reduce the length of the messages or completion. Current length is 42328 while limit is "
                    "40000", "type": "invalid_request_error"},
    ),
    "anthropic": (
        400, 213462,
        {"type": "error",
         "error": {"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"}},
    ),
    "anthropic, with the answer": (
        400, 188240,
        {"type": "error",
         "error": {"type": "invalid_request_error",
                   "message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, "
                              "decrease"}},
    ),
    "gemini": (400, 1200293, [{"error": {"code": 400, "message": GEMINI, "status": "INVALID_ARGUMENT"}}]),
    "gemini, an object": (400, 1200293, {"error": {"code": 400, "message": GEMINI, "status": "INVALID_ARGUMENT"}}),
    "gemini, quoted": (
        400, 1200293, error(orjson.dumps({"error": {"code": 400, "message": GEMINI}}).decode(), code=400),
    ),
    "vertex": (400, 1100000, {"error": {"code": 400, "message": VERTEX, "status": "INVALID_ARGUMENT"}}),
    "bedrock": (400, None, {"message": "Input is too long for requested model."}),
    "bedrock, wrapped": (
        400, 227255,
        {"message": "The model returned the following errors: prompt is too long: 227255 tokens > 200000 maximum"},
    ),
    "bedrock, titan": (
        400, 9279,
        {"message": "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: "
                    "9279"},
    ),
    "mistral": (
        400, 321774,
        {"object": "error",
         "message": "Prompt contains 321774 tokens and 0 draft tokens, too large for model with 262144 maximum "
                    "context length", "type": "invalid_request_prompt", "code": "3051"},
    ),
    "llama.cpp": (
        400, 4390,
        {"error": {"code": 400,
                   "message": "request (4390 tokens) exceeds the available context size (4096 tokens), try "
                              "increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 4390,
                   "n_ctx": 4096}},
    ),
    "llama.cpp, earlier": (
        500, None, error("the request exceeds the available context size. try increasing the context size", code=500),
    ),
    "llama.cpp, in the midst": (500, None, error("Context size has been exceeded.", type="server_error", code=500)),
    "llama-cpp-python": (500, 2285, error("Requested tokens (2285) exceed context window of 2048")),
    "sglang": (
        400, 61709,
        {"message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
         "code": 400},
    ),
    "sglang, allowed": (
        400, 160062, error("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."),
    ),
    "sglang, requested": (
        400, None, error("Requested token count exceeds the model's maximum context length of 131072 tokens."),
    ),
    "text generation inference": (
        422, 1000,
        {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512. Given: 1000 `inputs`",
         "error_type": "validation"},
    ),
    "text generation inference, prompt": (
        422, 1872, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1872"},
    ),
    "xai": (
        400, 537812,
        {"code": "Client specified an invalid argument",
         "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."},
    ),
    "cohere": (
        400, None,
        {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292."},
    ),
    "fireworks": (400, 208863, {"error": "The prompt is too long: 208863, model maximum context length: 202752"}),
    "ollama": (400, None, {"error": "prompt too long; exceeded max context length by 540451 tokens (ref: 00ad71bb)"}),
    "lm studio": (
        400, None,
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length. Try"},
    ),
    "dashscope": (400, None, {"code": "InvalidParameter", "message": "Range of input length should be [1, 6000]"}),
    "dashscope, wrapped": (
        400, None, error("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]"),
    ),
    "moonshot": (
        400, None, error("Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)"),
    ),
    "minimax": (
        400, None, {"type": "error", "error": {"message": "invalid params, context window exceeds limit (2013)"}},
    ),
    "github copilot": (
        400, 138898,
        error("prompt token count of 138898 exceeds the limit of 64000", code="model_max_prompt_tokens_exceeded"),
    ),
    "github copilot, only the message": (
        400, 65446, error("prompt token count of 65446 exceeds the limit of 64000", code=""),
    ),
    "litellm": (
        400, None,
        error("litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - whatever", code="400"),
    ),
    "litellm, not known there": (
        400, 204308, error(f"litellm.BadRequestError: DeepseekException - {LONG}", code="400"),
    ),
}  # fmt: skip

QUOTED = "prompt is too long: 213462 tokens > 200000 maximum"
OTHERS: dict[str, tuple[int, object]] = {
    "another member": (400, error("temperature: must be below 2", param="temperature")),
    "a quoted prompt": (400, error(f"messages.0.content: Input should be a valid list, got '{QUOTED}'")),
    "a quoted prompt in a list": (422, {"detail": [{"loc": ["body", "messages"], "msg": "bad", "input": LONG}]}),
    "tokens in a minute": (
        413,
        error("Request too large for model `llama` in organization `org` on tokens per minute (TPM): Limit 6000, "
              "Requested 14810, please reduce your message size and try again.", type="tokens",
              code="rate_limit_exceeded"),
    ),
    "a limit of rate that says so": (400, error(LONG, code="rate_limit_exceeded")),
    "throttled": (429, error("too many tokens: total number of tokens in the prompt cannot exceed 1")),
    "one text": (
        400,
        error("Invalid 'user': string too long. Expected a string with maximum length 64",
              code="string_above_max_length"),
    ),
    "the answer alone": (
        400, error("max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
    ),
    "no key": (401, error(LONG, code="context_length_exceeded")),
    "no such model": (404, error("The model does not exist")),
    "a body without words": (400, {}),
    "an array": (400, []),
    "a filter": (400, error(LONG, code="content_filter")),
    "a request of too many bytes": (
        413, {"error": {"type": "request_too_large", "message": "Request exceeds the size"}},
    ),
}  # fmt: skip


@for_every(REFUSALS)
def test_a_providers_refusal_for_the_context_window_is_recognised(name: str) -> None:
    status, _, body = REFUSALS[name]
    assert is_context_refusal(status, refusal_in(orjson.dumps(body)))


@for_every(OTHERS)
def test_a_refusal_for_something_else_is_none_for_the_context_window(name: str) -> None:
    status, body = OTHERS[name]
    assert not is_context_refusal(status, refusal_in(orjson.dumps(body)))


def test_every_form_is_met_by_an_example_of_its_own() -> None:
    told = [refusal_in(orjson.dumps(body)) for _, _, body in REFUSALS.values()]
    texts = [text for said in told for text in (said.message, *said.causes)]
    unmet = [form.pattern for form in FORMS if not any(form.search(text) for text in texts)]
    assert unmet == []


@for_every([200, 201, 301, 401, 402, 403, 404, 408, 429, 502, 503, 529])
def test_a_status_that_says_something_else_is_never_a_context_refusal(status: int) -> None:
    for _, _, body in REFUSALS.values():
        assert not is_context_refusal(status, refusal_in(orjson.dumps(body)))


@for_every([None, True, 7, 1.5, [], [LONG], {}, {"a": LONG}])
def test_members_of_other_types_are_no_context_refusal(bad: object) -> None:
    body = {"error": {"message": bad, "type": bad, "code": bad, "param": bad, "metadata": bad}}
    assert not is_context_refusal(400, refusal_in(orjson.dumps(body)))
    assert not is_context_refusal(400, refusal_in(orjson.dumps(bad)))
    assert not is_context_refusal(400, refusal_in(orjson.dumps({"error": {"metadata": {"raw": bad}}})))
    assert not is_context_refusal(400, refusal_in(orjson.dumps({"error": {"message": orjson.dumps(bad).decode()}})))


def test_an_opening_behind_much_text_is_not_read() -> None:
    for pad in (" " * 5_000, "x" * 5_000, "{" * 5_000, "litellm.BadRequestError: " * 500):
        assert not is_context_refusal(400, Refusal(message=pad + QUOTED))


def test_a_plain_text_that_begins_like_a_refusal_is_one() -> None:
    assert is_context_refusal(400, refusal_in(b"prompt is too long: 5 tokens > 4 maximum"))
    assert not is_context_refusal(400, refusal_in(b"<html>prompt is too long: 5 tokens > 4 maximum</html>"))


@given(st.text(max_size=200), st.integers(100, 599), st.one_of(st.none(), st.integers(), st.text(max_size=80)))
def test_any_text_gets_an_answer(message: str, status: int, code: object) -> None:
    assert is_context_refusal(status, Refusal(message, message, code, code)) in (True, False)


@for_every(REFUSALS)
def test_the_tokens_that_a_refusal_names(name: str) -> None:
    _, tokens, body = REFUSALS[name]
    assert named_tokens(refusal_in(orjson.dumps(body))) == tokens


def test_a_count_that_a_server_has_broken_off_is_none() -> None:
    message = (
        "This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt "
        "contains at least 4097 input tokens, for a total of at least 4097 tokens."
    )
    assert named_tokens(Refusal(message=message)) is None


@given(st.text(alphabet="0123456789 :(>maximum context length is prompt", max_size=4_000))
def test_any_words_are_searched_in_a_bounded_time(text: str) -> None:
    named_tokens(Refusal(message=text, causes=(text,)))
