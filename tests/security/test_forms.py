"""Forms: a model is found as every server would find it, or the form is refused. Each row asks for ``dear`` in a way
that some reader of forms understands, with a key whose list of models is ``[cheap]``."""

import pytest

from tests.examples import sampled
from tests.security.world import PROVIDER_KEYS, World

KIND = "multipart/form-data; boundary=b0"
PATHS = (
    "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits", "/v1/images/variations", "/v1/videos",
)  # fmt: skip


def part(name: str, value: str, more: str = "") -> str:
    return f'--b0\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'


def headed(parameters: str) -> str:
    return f"--b0\r\nContent-Disposition: form-data; {parameters}\r\n\r\ndear\r\n"


FILE = part("file", "RIFFRIFF", '; filename="a.wav"\r\nContent-Type: audio/wav')
CHEAP, DEAR, END = part("model", "cheap"), part("model", "dear"), "--b0--\r\n"

ROWS: dict[str, tuple[str, str]] = {
    "another model": (KIND, DEAR + FILE + END),
    "two models": (KIND, CHEAP + DEAR + FILE + END),
    "two models around the file": (KIND, CHEAP + FILE + DEAR + END),
    "two models, the other order": (KIND, DEAR + CHEAP + FILE + END),
    "in capitals behind": (KIND, CHEAP + part("MODEL", "dear") + FILE + END),
    "as an array": (KIND, CHEAP + part("model[]", "dear") + FILE + END),
    "as an indexed array": (KIND, CHEAP + part("model[0]", "dear") + FILE + END),
    "encoded in the name": (KIND, CHEAP + part("%6dodel", "dear") + FILE + END),
    "by RFC 8187": (KIND, CHEAP + part("x", "dear", "; name*=UTF-8''model") + FILE + END),
    "by a continued parameter": (KIND, CHEAP + part("x", "dear", '; name*0="mo"; name*1="del"') + FILE + END),
    "name twice": (KIND, CHEAP + part("x", "dear", '; name="model"') + FILE + END),
    "an escaped name": (KIND, CHEAP + part("mo\\del", "dear") + FILE + END),
    "a blank in the name": (KIND, CHEAP + part(" model ", "dear") + FILE + END),
    "in single quotes": (KIND, CHEAP + headed("name='model'") + FILE + END),
    "without quotes": (KIND, CHEAP + headed("name=model") + FILE + END),
    "a folded head": (KIND, CHEAP + headed('\r\n name="model"') + FILE + END),
    "bare line feeds": (KIND, CHEAP + '--b0\nContent-Disposition: form-data; name="model"\n\ndear\n' + FILE + END),
    "a file that is the model": (KIND, CHEAP + part("model", "dear", '; filename="m.txt"') + FILE + END),
    "base64": (KIND, part("model", "ZGVhcg==", "\r\nContent-Transfer-Encoding: base64") + FILE + END),
    "quoted-printable": (KIND, part("model", "=64ear", "\r\nContent-Transfer-Encoding: quoted-printable") + FILE + END),
    "behind the preamble": (KIND, "--b1\r\n" + CHEAP.replace("b0", "b1") + DEAR + FILE + END),
    "a name that ends at a NUL": (KIND, CHEAP + part("model\0x", "dear") + FILE + END),
    "two boundaries": (KIND + "; boundary=b1", CHEAP + DEAR.replace("b0", "b1") + END),
    "a boundary in capitals": ("multipart/form-data; BOUNDARY=b1; boundary=b0", CHEAP + FILE + END + DEAR),
    "a boundary by RFC 8187": ("multipart/form-data; boundary*=us-ascii''b1; boundary=b0", CHEAP + FILE + END),
    "a boundary in quotes with a blank": ('multipart/form-data; boundary="b0 "', DEAR + FILE + END),
    "a boundary that is another's prefix": (KIND, CHEAP + DEAR.replace("--b0", "--b0x") + FILE + END),
    "a delimiter with blanks": (KIND, CHEAP + DEAR.replace("--b0", "--b0 \t") + FILE + END),
    "no boundary": ("multipart/form-data", DEAR + FILE + END),
    "a very long boundary": ("multipart/form-data; boundary=" + "b" * 200, DEAR + FILE + END),
    "mixed instead of form-data": ("multipart/mixed; boundary=b0", DEAR + FILE + END),
    "no file": (KIND, DEAR + END),
    "an empty model, then another": (KIND, part("model", "") + DEAR + FILE + END),
    "no model": (KIND, FILE + END),
    "a model with a NUL": (KIND, part("model", "cheap\x00dear") + FILE + END),
    "a model with a line end": (KIND, part("model", "cheap\r\ndear") + FILE + END),
    "a type in capitals": ("MULTIPART/FORM-DATA; boundary=b0", DEAR + FILE + END),
    "a form by another name": ("application/x-www-form-urlencoded", "model=dear&file=x"),
    "JSON by the name of a form": (KIND, '{"model": "dear"}'),
    "a form by the name of JSON": ("application/json", DEAR + FILE + END),
    "a form without a type": ("text/plain", DEAR + FILE + END),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "form"), ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("path", sampled(PATHS[:1] + PATHS[3:4], 2))
def test_a_form_reaches_no_model_that_the_key_may_not_use(world: World, path: str, kind: str, form: str) -> None:
    world.call("POST", path, form.encode(), {"content-type": kind}, key="listed")
    for seen in world.sent():
        assert seen.provider == "alpha"
        assert PROVIDER_KEYS["beta"] not in seen.text
        # What went out cannot be understood as the other model.
        assert not (b"dear" in seen.body and b"--b0--" in seen.body.partition(b"dear")[2]), seen.body


def test_what_stands_behind_the_end_is_no_part(world: World) -> None:
    """RFC 2046 has servers ignore it; the model in front of it is the one that counts and that is billed."""
    world.call("POST", PATHS[0], (CHEAP + FILE + END + DEAR + END).encode(), {"content-type": KIND}, key="listed")
    assert [seen.provider for seen in world.sent()] == ["alpha"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("spelling", ["", "/", "//", "?a=b", "%2f"])
def test_the_list_holds_on_every_path_of_forms(world: World, path: str, spelling: str) -> None:
    headers = {"content-type": KIND}
    reply = world.call("POST", path + spelling, (DEAR + FILE + END).encode(), headers, key="listed")
    assert reply.status in (400, 403, 404)
    assert world.sent() == []


def test_an_honest_form_goes_out_once_under_the_deployments_name(world: World) -> None:
    headers = {"content-type": KIND}
    assert world.call("POST", PATHS[0], (CHEAP + FILE + END).encode(), headers, key="listed").status == 200
    (seen,) = world.sent()
    assert seen.body.decode() == part("model", "cheap-1") + FILE + END


@pytest.mark.parametrize("size", [1, 3, 17])
def test_a_form_in_small_chunks_is_read_as_a_whole_one(world: World, size: int) -> None:
    form = (CHEAP + FILE + DEAR + END).encode()
    pieces = [form[at : at + size] for at in range(0, len(form), size)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    headers = {"content-type": KIND, "transfer-encoding": "chunked"}
    reply = world.call("POST", PATHS[0], body, headers, key="listed")
    assert reply.status == 400
    assert all(b"--b0--" not in seen.body for seen in world.sent()), "no whole form reached the provider"
