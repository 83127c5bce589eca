from dataclasses import dataclass, field

import pytest

from proxy.hookspecs import Guarded, build_plugin_manager, hookimpl, recognisers
from proxy.protocol.recognition import (
    MOST_CHARS,
    MOST_PIECES,
    Bound,
    Cut,
    MessageKind,
    PieceKind,
    Recognition,
    TooMuch,
    recognise_text,
)


@dataclass
class Broken:
    """A recogniser with a mistake in it."""

    name: str = "broken"
    priority: int = -1

    def recognise(self, role: str, text: str) -> Recognition | None:
        raise ZeroDivisionError(text)


class BrokenPlugin:
    @hookimpl
    def register_recognisers(self) -> list[Broken]:
        return [Broken()]


@dataclass
class Watching:
    """Remembers what it hears."""

    seen: list[tuple[str, str]] = field(default_factory=list)
    off: list[str] = field(default_factory=list)

    def plugin_failed(self, plugin: str, hook: str) -> None:
        self.seen.append((plugin, hook))

    def plugin_reached(self, plugin: str, bound: str) -> None:
        self.seen.append((plugin, bound))

    def plugin_switched_off(self, plugin: str) -> None:
        self.off.append(plugin)


@dataclass
class Slow:
    """A recogniser of a plugin that knows every text, and takes so long for each as is said."""

    name: str = "slow"
    priority: int = -1
    takes_s: float = 0.0
    spent_s: float = 0.0
    calls: int = 0

    def recognise(self, role: str, text: str) -> Recognition | None:
        self.calls += 1
        self.spent_s += self.takes_s
        return Recognition("mine", MessageKind.SYSTEM, (Cut("section:0", PieceKind.SECTION, 0, len(text)),))


def slow() -> tuple[Slow, Guarded, Watching]:
    """The recogniser, as it is asked, and who hears of it."""
    inner, watching = Slow(), Watching()
    return inner, Guarded("slow", -1, inner, watching, cpu_s=lambda: inner.spent_s), watching


def test_a_plugin_that_is_too_slow_too_often_is_switched_off(caplog) -> None:
    inner, guarded, watching = slow()
    inner.takes_s = 0.2
    for _ in range(10):
        guarded.recognise("user", "a secret text")
    assert (inner.calls, watching.off) == (5, ["slow"])
    assert caplog.messages == ["plugin slow is too slow for the texts that it gets: it is switched off"]


def test_recognition_goes_on_with_the_others() -> None:
    inner, guarded, _ = slow()
    inner.takes_s = 9.0
    found = [guarded, *recognisers(build_plugin_manager())]
    text = "Be brief.\nCurrent time: 2026-01-01 10:00\n"
    names = [known.name for _ in range(6) if (known := recognise_text(found, "system", text)) is not None]
    assert names == ["mine"] * 5 + ["system"]


@pytest.mark.parametrize(
    ("takes_s", "chars", "rests"),
    [(0.05, 10, 0), (0.9, 1_000_000, 0), (9.0, 10, 400)],
    ids=["quick", "slow for a long text", "slow now and then"],
)
def test_a_plugin_that_is_quick_enough_stays(takes_s: float, chars: int, rests: int) -> None:
    inner, guarded, watching = slow()
    for _ in range(40):
        inner.takes_s = takes_s
        guarded.recognise("user", "x" * chars)
        inner.takes_s = 0.0
        for _ in range(rests):
            guarded.recognise("user", "x")
    assert watching.off == []


def test_a_text_that_is_too_much_for_a_plugin_is_counted_and_passed_on() -> None:
    class Mine:
        name, priority = "mine", -1

        def recognise(self, role: str, text: str) -> Recognition | None:
            if role == "user":
                raise TooMuch(Bound.MATCHES)
            cuts = (Cut(f"section:{at}", PieceKind.SECTION, at, at + 1) for at in range(len(text)))
            return Recognition("mine", MessageKind.SYSTEM, tuple(cuts))

    watching = Watching()
    guarded = Guarded("mine", -1, Mine(), watching)
    assert guarded.recognise("user", "text") is None
    assert guarded.recognise("system", "x" * MOST_PIECES) is not None
    assert guarded.recognise("system", "x" * (MOST_PIECES + 1)) is None
    assert guarded.recognise("system", "x" * (MOST_CHARS + 1)) is None
    assert watching.seen == [("mine", "matches"), ("mine", "pieces"), ("mine", "length")]
    assert recognise_text([Mine()], "user", "text") is None
    assert recognise_text([Mine()], "system", "x" * (MOST_PIECES + 1)) is None


def test_a_recogniser_is_guarded_with_what_it_says_of_its_texts() -> None:
    plain, guarded = recognisers(build_plugin_manager()), recognisers(build_plugin_manager(), Watching())
    assert [one.texts for one in guarded] == [one.texts for one in plain]
    assert not any(one.texts.may_have("user", "What is the time?") for one in guarded)


def test_a_recogniser_whose_texts_are_something_else_is_asked_about_every_text() -> None:
    inner, guarded, _ = slow()
    guarded.texts = {"words": 1}
    assert recognise_text([guarded], "user", "text") is not None
    assert inner.calls == 1


def test_a_plugin_that_raises_is_passed_over_and_told(caplog) -> None:
    manager, failures = build_plugin_manager(), Watching()
    manager.register(BrokenPlugin(), "broken")
    found = recognisers(manager, failures)
    text = "Be brief.\nCurrent time: 2026-01-01 10:00\n"
    known = recognise_text(found, "system", text)
    assert any(cut.kind is PieceKind.VOLATILE for cut in known.cuts)
    assert failures.seen == [("broken", "recognise")]
    assert "ZeroDivisionError" in caplog.text
    assert "Be brief" not in caplog.text
