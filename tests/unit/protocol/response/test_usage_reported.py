"""What an answer says of its price besides its tokens."""

import json
import math

import pytest

from proxy.protocol.request.demand import wants_of
from proxy.protocol.response import BodyFold, StreamFold
from proxy.protocol.response.usage import NOTHING_REPORTED, Reported, merged, reported_in
from tests.examples import for_every

RESPONSE = {
    "service_tier": "priority",
    "output": [{"type": f"{name}_call"} for name in ("web_search", "function", "web_search", "file_search")],
    "usage": {"input_tokens": 5, "output_tokens": 7, "output_tokens_details": {"audio_tokens": 4}},
}
EXPECTED = Reported(tier="priority", searches=2, files=1, audio_out=4)


def test_a_body_and_the_last_event_of_a_stream_say_the_same() -> None:
    body = BodyFold()
    body.feed(json.dumps(RESPONSE).encode())
    body.close()
    assert body.outcome().reported == EXPECTED
    stream = StreamFold()
    event = {"type": "response.completed", "response": RESPONSE}
    stream.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert stream.outcome().reported == EXPECTED


def test_anthropic_reports_within_the_usage() -> None:
    usage = {"server_tool_use": {"web_search_requests": 3}, "speed": "fast", "inference_geo": "us"}
    expected = Reported(is_fast=True, is_local=True, searches=3)
    assert reported_in({"usage": usage}) == expected
    assert reported_in({"message": {"usage": usage, "service_tier": "standard"}}) == expected


def test_images_sound_and_money() -> None:
    assert reported_in({"data": [{}, {}]}) == Reported(images=2)
    assert reported_in({"usage": {"type": "duration", "seconds": 9}}) == Reported(seconds=9.0)
    assert reported_in({"duration": 2.5}) == Reported(seconds=2.5)
    assert reported_in({"usage": {"cost": 0.25}}) == Reported(usd=0.25)


def test_gemini_reports_kinds_of_tokens_and_searches() -> None:
    answer = {
        "candidates": [{"content": {"parts": []}, "groundingMetadata": {"webSearchQueries": ["a", "b"]}}],
        "usageMetadata": {
            "promptTokenCount": 9,
            "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 7}, {"modality": "TEXT", "tokenCount": 2}],
            "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}],
        },
    }
    expected = Reported(searches=2, audio_in=7, image_out=1290)
    assert reported_in(answer) == expected
    body = BodyFold()
    body.feed(json.dumps(answer).encode())
    body.close()
    assert body.outcome().reported == expected


@for_every([-1, math.nan, math.inf, "1", True, None, 1e300, [1]])
def test_what_makes_no_sense_is_nothing(odd: object) -> None:
    usage = {"seconds": odd, "cost": odd, "num_search_queries": odd, "server_tool_use": {"web_search_requests": odd}}
    assert reported_in({"usage": usage, "service_tier": odd if not isinstance(odd, str) else None}) == NOTHING_REPORTED


def test_reports_add_up_by_the_larger_one() -> None:
    first, second = Reported(searches=2), Reported(tier="flex", searches=1, usd=1.0)
    assert merged(first, second) == Reported(tier="flex", searches=2, usd=1.0)
    assert merged(first, NOTHING_REPORTED) == merged(NOTHING_REPORTED, first) == first


@pytest.mark.parametrize(
    ("usage", "is_fast", "is_local"),
    [
        ({"speed": "fast", "inference_geo": "us"}, True, True),
        ({"speed": "faster", "inference_geo": "jp"}, True, True),
        ({"speed": "standard", "inference_geo": "global"}, False, False),
        ({"speed": None, "inference_geo": "not_available"}, False, False),
        ({"speed": "", "inference_geo": None}, False, False),
        ({}, False, False),
    ],
)
def test_a_speed_or_a_place_that_is_not_the_usual_one_is_billed_as_it_was_reserved(
    usage: dict[str, object], is_fast: bool, is_local: bool
) -> None:
    found = reported_in({"usage": {"input_tokens": 1, **usage}})
    assert (found.is_fast, found.is_local) == (is_fast, is_local)
    asked = {name: json.dumps(value).encode() for name, value in usage.items()}
    wanted, _ = wants_of(asked)
    if usage.get("inference_geo") != "not_available":  # of older models; nobody asks for it
        assert (wanted.is_fast, wanted.is_local) == (is_fast, is_local)


def test_what_litellm_counts_beside_the_kinds_of_tokens() -> None:
    details = {"text_tokens": 5, "video_tokens": 90, "web_search_requests": 2, "google_maps_grounding_requests": 1}
    made = {"reasoning_tokens": 7, "video_tokens": 3}
    usage = {"prompt_tokens": 95, "prompt_tokens_details": details, "completion_tokens_details": made}
    found = reported_in({"usage": usage})
    assert (found.searches, found.video_in, found.video_out, found.thought) == (3, 90, 3, 7)
