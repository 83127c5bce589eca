"""References are found however their members are written, and nothing else is taken for one."""

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest
from proxy.protocol.references import MOST_REFERENCES, LineFile, family_of, may_refer, references
from tests.examples import for_every, sampled
from tests.growth import assert_linear

IDS = ["previous_response_id", "file_id", "file_ids", "input_file_id", "training_file", "vector_store_ids", "batch_id"]
HOLDERS = ["conversation", "container"]
OBJECTS = ["prompt", "audio", "voice"]


def found(body: bytes, *, has_items: bool = False) -> list[str]:
    return [one.id for one in references(body, has_items=has_items)]


@for_every([*IDS, *HOLDERS])
def test_a_member_is_found_however_its_name_is_written(name: str) -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in name)
    for written in (name, name.upper(), name.title(), escaped, name[:3] + escaped[18:]):
        body = f'{{"a": "tool_call_id", "{written}" : "x"}}'.encode()
        assert may_refer(body, has_items=False), written
        assert found(body) == ["x"], written


@pytest.mark.parametrize("name", [*HOLDERS, *OBJECTS])
def test_an_object_with_an_id_refers(name: str) -> None:
    assert found(f'{{"{name}":\n{{"id": "x", "id": "y"}}}}'.encode()) == ["x", "y"]


@pytest.mark.parametrize(
    "tool",
    [
        {"fileSearch": {"fileSearchStoreNames": ["ID"]}},
        {"file_search": {"file_search_store_names": ["ID"]}},
        {"retrieval": {"vertexRagStore": {"ragResources": [{"ragCorpus": "ID"}]}}},
        {"retrieval": {"vertex_rag_store": {"rag_corpora": ["ID"]}}},
        {"retrieval": {"vertexAiSearch": {"datastore": "ID"}}},
        {"type": "collections_search", "collection_ids": ["ID"]},
        {"type": "document_library", "library_ids": ["ID"]},
        {"type": "retrieval", "retrieval": {"knowledge_id": "ID"}},
    ],
)
def test_the_stores_in_which_a_providers_tool_looks_are_objects(tool: dict[str, object]) -> None:
    body = json.dumps({"tools": [{"type": "function", "function": {"name": "f"}}, tool]}).encode()
    assert may_refer(body)
    assert found(body) == ["ID"]


def source(*ways: str, **more: object) -> str:
    """One of Azure's sources of data, as JSON, with these ways to authenticate."""
    authentication = ", ".join(f'"type": "{way}"' for way in ways)
    named = json.dumps({"type": "azure_search", **more})[:-1]
    return f'{named}, "parameters": {{"index_name": "i", "authentication": {{{authentication}}}}}}}'


@for_every(
    [
        (source("system_assigned_managed_identity"), ["azure_search"]),
        (source("user_assigned_managed_identity"), ["azure_search"]),
        (source(), ["azure_search"]),
        (source("api_key", "system_assigned_managed_identity"), ["azure_search"]),
        (source("something_new", type=7), ["data_sources"]),
        ('{"type": "azure_cosmos_db"}', ["azure_cosmos_db"]),
        (source("api_key")[:-1] + ', "parameters": {}}', ["azure_search"]),
        ('"an index"', ["data_sources"]),
        (source("api_key"), []),
        (source("connection_string"), []),
        ("null", []),
    ]
)
def test_a_source_of_data_belongs_to_the_operator_unless_the_client_brings_credentials(
    written: str, ids: list[str]
) -> None:
    for name in ("data_sources", "dataSources", "DATA_SOURCES"):
        for value in (written, f"[{written}]", f"[{source('access_token')}, {written}]"):
            assert found(f'{{"messages": [], "{name}": {value}}}'.encode()) == ids, value


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "prompt": "x", "voice": "alloy", "audio": {"voice": "alloy"}}',
        b'{"messages": [{"tool_call_id": "x", "content": "\\"file_id\\": \\"y\\""}]}',
        b'{"tools": [{"input_schema": {"properties": {"file_id": {"type": "string"}, "a": {"file_ids": ["x"]}}}}]}',
        b'{"messages": [{"content": [{"type": "tool_use", "id": "t", "input": {"file_id": {"file_id": "x"}}}]}]}',
        b'{"metadata": {"file_id": "x"}, "container": {"type": "auto"}, "conversation": null}',
        b'{"client_metadata": {"session_id": "x", "thread_id": "x", "turn_id": "y"}, "prompt_cache_key": "x"}',
        b'{"container": {"skills": [{"type": "anthropic", "skill_id": "pptx"}]}}',
    ],
)
def test_what_refers_to_nothing(body: bytes) -> None:
    assert found(body) == []


@for_every(
    [
        ('{"type": "item_reference", "id": "x"}', ["x"]),
        ('{"id": "x"}', ["x"]),
        ('{"id": "x", "role": "user", "content": "hello"}', []),
        ('{"type": "reasoning", "id": "x", "summary": []}', ["x"]),
        ('{"type": "reasoning", "id": "x", "encrypted_content": "abc"}', []),
        ('{"type": "message", "id": "x", "content": []}', []),
        ('{"type": "function_call", "id": "x", "call_id": "c", "arguments": "{}"}', []),
        ('{"type": "image_generation_call", "id": "x"}', ["x"]),
    ]
)
def test_an_item_stands_for_a_stored_one_where_it_has_no_content(item: str, ids: list[str]) -> None:
    assert found(f'{{"input": [{item}]}}'.encode(), has_items=True) == ids


@pytest.mark.parametrize(
    "body",
    [b'{"file_id": 7}', b'{"file_ids": [true]}', b'{"file_id": "x"', b'{"file_id": "x"}{}', b'{"file_id":' * 2000],
)
def test_a_body_whose_references_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        references(body, has_items=False)


GEMINI_FILE = "https://generativelanguage.googleapis.com/v1beta/files/abc"


@for_every([GEMINI_FILE, GEMINI_FILE.upper(), "https://youtu.be@" + GEMINI_FILE[8:], "files/abc", "gs://bucket/a.pdf"])
def test_the_address_of_a_stored_file_refers_to_it(uri: str) -> None:
    for member in ("fileUri", "file_uri", "gcsUri"):
        body = json.dumps({"contents": [{"parts": [{"fileData": {member: uri, "mimeType": "video/mp4"}}]}]}).encode()
        assert found(body) == [uri]


def test_an_address_of_the_public_web_refers_to_nothing() -> None:
    for uri in ("https://www.youtube.com/watch?v=x", "http://example.com:8080/googleapis.com"):
        assert found(json.dumps({"fileData": {"fileUri": uri}}).encode()) == []


SPELLINGS = (
    str, str.upper, lambda c: f"\\u{ord(c):04x}", lambda c: "\\/" if c == "/" else c,
)  # fmt: skip


@given(
    st.sampled_from(["gs", "s3", "bq", "abfss", "oss", "x-store"]),
    st.lists(st.sampled_from(SPELLINGS), min_size=10, max_size=10),
    st.sampled_from(["url", "image_url", "storageUri", "uri", "input", "anything_at_all"]),
    st.sampled_from(["%s", "[%s]", '["x", %s]', '{"a": [{"b": %s}]}', '{"url": %s}']),
)
def test_the_address_of_a_store_refers_to_it_in_every_member(
    scheme: str, spellings: list[Callable[[str], str]], member: str, holder: str
) -> None:
    spelt = "".join(spell(c) for spell, c in zip(spellings, f"{scheme}://", strict=False))
    value = holder % f'"{spelt}bucket/name"'
    for around in ('{"%s": %s}', '{"messages": [{"content": [{"type": "x", "%s": %s}]}]}'):
        body = (around % (member, value)).encode()
        assert [one.lower() for one in found(body)] == [f"{scheme}://bucket/name"], body


def test_where_the_form_is_not_known_no_member_is_the_clients_own() -> None:
    body = b'{"instances": [{"prompt": "a cat"}], "parameters": {"storageUri": "gs://bucket/out", "metadata": ["s3://b/c"]}}'
    assert found(body) == []
    named = references(body, has_items=False, is_free_form=True)
    assert {one.id for one in named} == {"gs://bucket/out", "s3://b/c"}


@for_every(
    [
        '{"messages": [{"content": "gs://bucket is full"}, {"content": [{"type": "text", "text": "s3://a"}]}]}',
        '{"image_url": "https://example.com/gs://x", "url": "data:image/png;base64,AAAA", "a": "see gs://bucket"}',
        '{"messages": [{"content": "write \\"gs://bucket\\" there"}], "stop": ["://"], "uri": "file:///home/a"}',
        '{"stratiform": "untitled://a", "metadata": {"source": "gs://bucket/name"}}',
    ]
)
def test_a_text_about_a_store_and_an_open_address_refer_to_nothing(body: str) -> None:
    assert found(body.encode()) == []


def test_references_are_bounded() -> None:
    ids = ",".join(f'"f{i}"' for i in range(MOST_REFERENCES + 1))
    with pytest.raises(InvalidRequest, match=str(MOST_REFERENCES)):
        references(f'{{"file_ids": [{ids}]}}'.encode(), has_items=False)


def test_a_name_of_a_form_or_a_query_refers_as_a_members() -> None:
    assert [family_of(name) for name in ("file_id", "File_Ids[]", "container", "purpose")] == [
        "files", "files", "containers", None,
    ]  # fmt: skip


PIECES = [
    b"\\u0061", b"\\u005F", b'"\\u0061b"', b'"a', b'"a\\u0061', b'_id"', b'\\"id\\"', b'"prompt"      ', b'"prompt":',
    b'{"file_id":null},', b'{"prompt":{}},', b"[", b"\\n", b"/responses", b"\\u002f", b'"', b"\\", b"abc_",
    b"://", b'"gs:\\/', b'"\\u0067s',
]  # fmt: skip


@pytest.mark.parametrize("piece", sampled(PIECES, 3))
@pytest.mark.parametrize("has_items", [True, False])
def test_no_text_costs_more_than_its_length(piece: bytes, *, has_items: bool) -> None:
    def work(text: bytes) -> None:
        for body in (text, b'{"previous_response_id": "x", "y": "' + text, b'{"file_id": "x", "y": [' + text):
            with suppress(InvalidRequest):
                references(body, has_items=has_items)

    assert_linear(work, lambda size: piece * (size // len(piece)), 64 << 10)


@pytest.mark.parametrize("piece", sampled(PIECES, 3))
def test_no_file_costs_more_than_its_length(piece: bytes) -> None:
    chunk = piece * ((64 << 10) // len(piece))

    def work(chunks: range) -> None:
        lines = LineFile()
        for _ in chunks:
            lines.feed(chunk)

    assert_linear(work, range, 4)


def test_very_many_escapes_are_too_much_to_look_at() -> None:
    body = b'{"file_id": "x", "y": "%s"}' % (b"\\n" * 500_001)
    with pytest.raises(InvalidRequest, match="500000 backslashes"):
        references(body, has_items=False)
    names = b",".join(b'"\\u0061%d":1' % number for number in range(2000))
    assert may_refer(b"{%s}" % names, has_items=False) is False, "these are no names of letters alone"
    names = b",".join(b'"\\u0061%s":1' % bytes((97 + n % 26, 97 + n // 26 % 26)) for n in range(2000))
    assert may_refer(b"{%s}" % names, has_items=False) is True
