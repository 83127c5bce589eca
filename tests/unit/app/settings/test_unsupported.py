"""A slip in the name of a key that restricts clients does not open the proxy."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.app.settings import Effect, Environment, load
from proxy.app.settings.unsupported import CHANGES, HARMLESS, RESTRICTS, effect_of

SECTIONS = ("general_settings", "litellm_settings", "router_settings")
HONOURED = {
    "general_settings": ["master_key", "allowed_ips"],
    "litellm_settings": ["max_budget", "budget_duration"],
    "router_settings": [],
}
LONG = [(section, name) for section in SECTIONS for name in (*RESTRICTS[section], *HONOURED[section]) if len(name) > 9]


@given(st.sampled_from(LONG), st.data())
def test_a_restricting_name_with_a_slip_restricts(key: tuple[str, str], data: st.DataObject) -> None:
    section, name = key
    at = data.draw(st.integers(3, len(name) - 1))
    slip = data.draw(st.sampled_from([name[:at] + name[at + 1 :], name[:at] + "x" + name[at:], name.replace("_", "-")]))
    known = {*RESTRICTS[section], *CHANGES[section], *HARMLESS[section], *HONOURED[section]}
    assume(slip not in known)
    effect, note = effect_of(section, slip)
    assert effect is Effect.RESTRICTS
    assert note.startswith("did you mean `")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("general_settings: {masterkey: sk-1234}",
         ["general_settings.masterkey", "restricts", "`general_settings.master_key`"]),
        ("litellm_settings: {master_key: sk-1234}",
         ["litellm_settings.master_key", "restricts", "`general_settings.master_key`"]),
        ("master_key: sk-1234", ["master_key", "restricts", "`general_settings.master_key`"]),
        ("teams: [{name: a}]", ["teams", "restricts", "`stratiform.teams`"]),
        ("router_settings: {num_retrys: 0}",
         ["router_settings.num_retrys", "unknown", "`router_settings.num_retries`"]),
        ("mode: mark", ["mode", "unknown", "`stratiform.mode`"]),
    ],
)  # fmt: skip
def test_a_slip_is_told_with_what_was_meant(tmp_path: Path, text: str, told: list[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"model_list: [{{model_name: m, litellm_params: {{model: embedded/claude-sonnet-4-5}}}}]\n{text}\n")
    (found,) = load(file, environment=Environment({"HOME": str(tmp_path)})).unused
    assert [found.path, found.effect.value, found.note] == [*told[:2], f"did you mean {told[2]}?"]
