"""Which prompts change within a conversation, and where they go for it."""

from proxy.core.prompts.assembler import assemble
from proxy.core.prompts.prompt import Composition, Position, Prompt, merged
from proxy.core.prompts.steadiness import Seen, Steadiness
from proxy.core.prompts.terms import PromptTerms


def composed(**texts: str) -> Composition:
    """Prompts whose names begin with ``context`` have that position; all others are ``system``."""
    prompts = [
        Prompt(name, Position.CONTEXT if name.startswith("context") else Position.SYSTEM, text, is_literal=True)
        for name, text in texts.items()
    ]
    return assemble(prompts, PromptTerms(use=("*",)), merged(), lambda prompt, *_: prompt.text)


def seen(steadiness: Steadiness, conversation: bytes = b"one", scope: str = "red", **texts: str) -> Seen:
    return steadiness.seen(scope, conversation, composed(**texts))


def test_a_first_request_changes_nothing() -> None:
    assert seen(Steadiness(), context_a="x", main="y") == Seen()


def test_a_context_that_changes_goes_to_the_tail_and_stays_there() -> None:
    steadiness = Steadiness()
    seen(steadiness, context_a="x", main="y")
    assert seen(steadiness, context_a="z", main="y") == Seen(frozenset({"context_a"}), ("context_a",))
    assert seen(steadiness, context_a="z", main="y") == Seen(frozenset({"context_a"}))


def test_a_prompt_of_another_position_stays_and_its_change_is_told() -> None:
    steadiness = Steadiness()
    seen(steadiness, main="y")
    assert seen(steadiness, main="z") == Seen(changed=("main",))


def test_a_prompt_that_comes_or_goes_has_changed() -> None:
    steadiness = Steadiness()
    seen(steadiness, main="y", flag="on")
    assert seen(steadiness, main="y").changed == ("flag",)
    assert seen(steadiness, main="y", flag="on").changed == ("flag",)


def test_conversations_and_clients_do_not_know_each_other() -> None:
    steadiness = Steadiness()
    seen(steadiness, context_a="x")
    assert seen(steadiness, b"two", context_a="z") == Seen()
    assert seen(steadiness, b"one", "blue", context_a="z") == Seen()


def test_a_new_conversation_begins_with_a_volatile_context_at_the_tail() -> None:
    steadiness = Steadiness()
    for turn in range(8):
        seen(steadiness, context_a=str(turn), context_b="same")
    assert seen(steadiness, b"two", context_a="0", context_b="same").at_tail == {"context_a"}
    assert seen(steadiness, b"two", "blue", context_a="0").at_tail == frozenset()


def test_a_condition_that_flips_often_is_told_as_volatile() -> None:
    steadiness, told = Steadiness(), list[tuple[str, ...]]()
    for turn in range(12):
        told.append(seen(steadiness, main="y", **({"flag": "on"} if turn % 2 else {})).volatile)
    assert told[0] == ()
    assert told[-1] == ("flag",)


def test_a_rare_change_is_not_volatile() -> None:
    steadiness = Steadiness()
    for turn in range(40):
        found = seen(steadiness, main=str(turn // 10))
        assert found.volatile == ()
