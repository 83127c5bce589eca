"""Keys that are told by how they are written."""

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.secrets import redaction
from proxy.core.secrets.redaction import without_shapes

_STARTS = (
    "sk-strat-", "sk-", "rk-", "pk-", "xai-", "gsk-", "pplx-", "csk-", "nvapi-", "glpat-", "sk_", "rk_", "pk_", "gsk_",
    "hf_", "r8_", "ghp_", "gho_", "ghs_", "tgp_", "github_pat_", "AIza", "AKIA", "ASIA", "ya29.", "eyJ", "Bearer ",
    "bEARER\t", "basic ", "BASIC ", "api_key=", "API-Key: ", "apikey=", "access_token\": \"", "Access-Token=",
    "http://", "to\u212aen", "ba\u017fic ", "AP\u0130key=",
)  # fmt: skip
_RESTS = (
    "abcdefgh12345678ABCDEFGH",
    ".abcdefgh1",
    "user:pass@host",
    "x" * 40,
    "@",
    " ",
    "",
    "gpt-4o-mini",
    "/v1/",
    '"',
)


@given(st.lists(st.sampled_from((*_STARTS, *_RESTS)), max_size=5))
@example(['access_token": "', "x" * 40])
def test_the_quick_look_misses_no_shape(pieces: list[str]) -> None:
    text = "".join(pieces)
    thorough = text
    for pattern, replacement in redaction._SHAPES:
        thorough = pattern.sub(replacement, thorough)
    assert without_shapes(text) == thorough


def test_every_start_of_a_key_is_found() -> None:
    rest = "ABCDEFGH12345678ABCDEFGH.abcdefgh1@"
    for start in filter(str.isascii, _STARTS):
        assert without_shapes(f"{start}{rest}") != f"{start}{rest}", start
