"""A completion is fitted to its budget: the prompt keeps its end, the suffix its beginning."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest
from proxy.prompts.window import Capability, CapabilityProfile, Count
from proxy.prompts.window.fitting import FittedMessages, fitted_completion
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.wire.json_body import parse_members

PROFILE = CapabilityProfile("completion", Capability.COMPLETION, window_tokens=2_000)


def fitted(tokens: int, count: Count = bytes_over_four, **members: object) -> FittedMessages:
    return fitted_completion(parse_members(json.dumps({"model": "m", **members}).encode()), PROFILE, tokens, count)


def test_what_fits_stays_as_it_came() -> None:
    found = fitted(500, prompt="a" * 400, suffix="b" * 400, max_tokens=5)
    assert (dict(found.changes), found.excess_tokens, found.sent_tokens) == ({}, 0, 200)


def test_the_prompt_keeps_its_end_and_the_suffix_its_beginning() -> None:
    prompt, suffix = "".join(f"line {n}\n" for n in range(2_000)), "".join(f"more {n}\n" for n in range(2_000))
    found = fitted(600, prompt=prompt, suffix=suffix)
    sent = {name: json.loads(raw) for name, raw in found.changes.items()}
    assert prompt.endswith(sent.get("prompt", prompt))
    assert suffix.startswith(sent.get("suffix", suffix))
    assert sum(bytes_over_four(sent.get(name, text)) for name, text in (("prompt", prompt), ("suffix", suffix))) <= 600


def test_a_member_that_nobody_knows_takes_room() -> None:
    assert fitted(100, prompt="a" * 40, extra_text="x" * 400).excess_tokens > 0


@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], {"a": 1}, 5])
def test_a_prompt_that_is_no_one_text_is_refused(prompt: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fitted(100, prompt=prompt)
    assert caught.value.code == "window_unavailable"


@given(st.integers(0, 3), st.integers(0, 600), st.integers(1, 9), st.integers(1, 200))
def test_a_tokenizer_that_counts_short_texts_as_nothing_ends_in_a_budget_that_is_kept_or_told(
    least: int, unseen: int, a_token: int, room: int
) -> None:
    """``least`` tokens has every text, the empty one, too, and characters count from the ``unseen`` on."""

    def count(text: str) -> int:
        return least + max(0, len(text) - unseen) // a_token

    found = fitted(room, count, prompt="p" * 3_000, suffix="s" * 500)
    sent = [json.loads(found.changes.get(name, b'"-"')) for name in ("prompt", "suffix")]
    assert found.sent_tokens <= room or (found.excess_tokens == 2 * least - room and sent == ["", ""])
