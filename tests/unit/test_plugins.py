from dataclasses import dataclass, field

from proxy.core.recognition import Cut, Form, PieceKind, Recognition, recognise_text
from proxy.hookspecs import hookimpl
from proxy.plugins import build_plugin_manager, recognisers


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
class Failures:
    seen: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, plugin: str, hook: str) -> None:
        self.seen.append((plugin, hook))


def test_a_plugin_that_raises_is_passed_over_and_told(caplog) -> None:
    manager, failures = build_plugin_manager(), Failures()
    manager.register(BrokenPlugin(), "broken")
    found = recognisers(manager, failures)
    text = "Be brief.\nCurrent time: 2026-01-01 10:00\n"
    known = recognise_text(found, "system", text)
    assert known is not None
    assert any(cut.kind is PieceKind.VOLATILE for cut in known.cuts)
    assert failures.seen == [("broken", "recognise")]
    assert "ZeroDivisionError" in caplog.text
    assert "Be brief" not in caplog.text


def test_a_plugin_that_works_says_what_it_says() -> None:
    class Mine:
        name, priority = "mine", -1

        def recognise(self, role: str, text: str) -> Recognition | None:
            return Recognition("mine", Form.SYSTEM, (Cut("section:0", PieceKind.SECTION, 0, len(text)),))

    class Plugin:
        @hookimpl
        def register_recognisers(self) -> list[Mine]:
            return [Mine()]

    manager, failures = build_plugin_manager(), Failures()
    manager.register(Plugin(), "mine")
    found = recognisers(manager, failures)
    assert (found[0].name, found[0].priority) == ("mine", -1)
    known = recognise_text(found, "system", "text")
    assert known is not None
    assert (known.name, failures.seen) == ("mine", [])
