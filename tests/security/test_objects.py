"""Objects of the provider's account: a team reaches what it has made, and nothing else.

The providers here keep objects for their account's key: whatever gets past the proxy is answered. Team A and team B
each make an object of every kind; then the table tries to reach the other team's in every way there is.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from proxy.models.charges import NANOS_PER_USD
from tests.examples import sampled
from tests.security.accounts import USAGE, Account
from tests.security.provider import INPUT_USD, OUTPUT_USD
from tests.security.world import CONFIG, MODELS, PRICES, Reply, World, world_of

BACKGROUND_USD = USAGE["input_tokens"] * INPUT_USD + USAGE["output_tokens"] * OUTPUT_USD
FORM = {"content-type": "multipart/form-data; boundary=b"}
KINDS = {
    "files": "/v1/files",
    "uploads": "/v1/uploads",
    "responses": "/v1/responses",
    "completions": "/v1/chat/completions",
    "batches": "/v1/batches",
    "vector_stores": "/v1/vector_stores",
    "conversations": "/v1/conversations",
    "containers": "/v1/containers",
    "message_batches": "/v1/messages/batches",
    "videos": "/v1/videos",
}
BELOW = {
    "files": ["content"],
    "uploads": [],
    "responses": ["input_items"],
    "completions": ["messages"],
    "batches": [],
    "vector_stores": ["files", "files/file_x/content", "file_batches/vsfb_x"],
    "conversations": ["items", "items/msg_x"],
    "containers": ["files", "files/cfile_x/content"],
    "message_batches": ["results"],
    "videos": ["content"],
}
LISTS = [kind for kind in KINDS if kind not in ("uploads", "responses", "conversations")]


def form(*fields: tuple[str, str]) -> bytes:
    parts = [f'--b\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    return ("".join(parts) + "--b--\r\n").encode()


@dataclass
class Shared:
    """A world in which both teams have made one of each kind. ``made`` are the ids by team and kind."""

    world: World
    alpha: Account
    beta: Account
    made: dict[str, dict[str, str]] = field(default_factory=dict)

    def create(self, kind: str, key: str, **more: object) -> Reply:
        match kind:
            case "files" | "videos":
                fields = (("purpose", "user_data"), ("file", "text"))
                return self.world.call("POST", KINDS[kind], form(*fields), FORM, key=key)
            case "responses":
                body: dict[str, object] = {"model": "cheap", "input": "Hello"}
            case "completions":
                body = {"model": "cheap", "store": True, "messages": [{"role": "user", "content": "Hello"}]}
            case _:
                body = {"metadata": {"a": "b"}}
        return self.world.call("POST", KINDS[kind], {**body, **more}, key=key)


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    config = CONFIG.replace(
        "    - name: listed\n",
        "    - name: free\n      keys: [sk-free-team-9d1c55e0ab77c301]\n      paths: [fine_tuning, batches, prompts]\n"
        "    - name: listed\n",
    )
    with world_of(config) as world:
        found = Shared(world, Account("alpha"), Account("beta"))
        world.providers["alpha"].script, world.providers["beta"].script = found.alpha, found.beta
        for key in ("team-a", "team-b"):
            replies = {kind: found.create(kind, key) for kind in KINDS}
            assert {reply.status for reply in replies.values()} == {200}, replies
            found.made[key] = {kind: reply.json["id"] for kind, reply in replies.items()}
        yield found


FREE = "sk-free-team-9d1c55e0ab77c301"


def is_as_if_it_did_not_exist(shared: Shared, reply: Reply, name: str, before: int) -> None:
    """404 as for what does not exist, and nothing of it reached the provider."""
    assert reply.status == 404, reply
    assert reply.json["error"]["code"] == "not_found"
    assert len(shared.world.sent()) == before
    unknown = shared.world.call("GET", "/v1/files/file_nobodys")
    expected = unknown.json["error"]["message"].replace("file_nobodys", name)
    assert reply.json["error"]["message"] == expected


PATHS = [
    (method, kind, below)
    for kind in KINDS
    for method, below in [
        ("GET", ""),
        ("HEAD", ""),
        ("DELETE", ""),
        *(("GET", f"/{path}") for path in BELOW[kind]),
        *([("POST", "/cancel")] if kind in ("responses", "batches", "uploads", "message_batches") else []),
        *([("POST", "")] if kind in ("completions", "vector_stores", "conversations") else []),
    ]
]


@pytest.mark.parametrize(("method", "kind", "below"), sampled(PATHS, 2))
def test_another_teams_object_is_as_if_it_did_not_exist(shared: Shared, method: str, kind: str, below: str) -> None:
    name = shared.made["team-b"][kind]
    before = len(shared.world.sent())
    reply = shared.world.call(method, f"{KINDS[kind]}/{name}{below}", key="team-a")
    if method == "HEAD":
        assert (reply.status, len(shared.world.sent())) == (404, before)
    else:
        is_as_if_it_did_not_exist(shared, reply, name, before)


@pytest.mark.parametrize(("method", "kind", "below"), sampled([row for row in PATHS if row[0] == "GET"], 2))
def test_a_teams_own_object_is_reached_by_it_and_by_the_master(
    shared: Shared, method: str, kind: str, below: str
) -> None:
    path = f"{KINDS[kind]}/{shared.made['team-b'][kind]}{below}"
    assert [shared.world.call(method, path, key=key).status for key in ("team-b", "master")] == [200, 200]
    assert shared.world.call(method, path.replace("_alpha", "%5Falpha"), key="team-b").status == 200
    assert shared.world.call(method, path, key="keyed").status in (200, 403), "the same team, with a list of models"


@pytest.mark.parametrize(
    "written",
    [
        "{}", "%66{}", "{}/", "{}%20", "{}%00", "{}%3Fx", "{}%23", "{};x=1", "%2e%2f{}", "./{}", "x/../{}", "{}?a=b",
        "{}%2Fcontent", "//{}", "{}%252F", "\\{}", "own/{}", "own%2F..%2F{}", "{}#own", "{}/content?x=own",
    ],
)  # fmt: skip
def test_no_way_of_writing_an_id_reaches_another_teams_object(shared: Shared, written: str) -> None:
    name, own = shared.made["team-b"]["files"], shared.made["team-a"]["files"]
    shown = name[1:] if written.startswith("%66") else name
    before = len(shared.world.sent())
    reply = shared.world.call("GET", "/v1/files/" + written.format(shown).replace("own", own), key="team-a")
    assert reply.status in (400, 403, 404), reply
    assert len(shared.world.sent()) == before


ITEM = {"type": "item_reference"}
REFERENCES: list[tuple[str, str, str, dict[str, object]]] = [
    ("responses", "previous_response_id", "/v1/responses", {"previous_response_id": "ID"}),
    ("responses", "item", "/v1/responses", {"input": [{**ITEM, "id": "msg_ID"}]}),
    ("responses", "item without a type", "/v1/responses", {"input": [{"id": "msg_ID"}]}),
    ("responses", "reasoning", "/v1/responses", {"input": [{"type": "reasoning", "id": "msg_ID", "summary": []}]}),
    ("responses", "compact", "/v1/responses/compact", {"previous_response_id": "ID"}),
    ("responses", "count", "/v1/responses/input_tokens", {"previous_response_id": "ID"}),
    ("conversations", "text", "/v1/responses", {"conversation": "ID"}),
    ("conversations", "object", "/v1/responses", {"conversation": {"id": "ID"}}),
    ("files", "input_file", "/v1/responses", {"input": [{"content": [{"type": "input_file", "file_id": "ID"}]}]}),
    ("files", "input_image", "/v1/responses", {"input": [{"content": [{"type": "input_image", "file_id": "ID"}]}]}),
    ("files", "case", "/v1/responses", {"input": [{"content": [{"type": "input_image", "File_ID": "ID"}]}]}),
    ("files", "container", "/v1/responses", {"tools": [{"container": {"type": "auto", "file_ids": ["ID"]}}]}),
    (
        "files",
        "mask",
        "/v1/responses",
        {"tools": [{"type": "image_generation", "input_image_mask": {"file_id": "ID"}}]},
    ),
    ("files", "prompt variables", "/v1/responses", {"prompt": {"variables": {"f": {"file_id": "ID"}}}}),
    (
        "files",
        "chat",
        "/v1/chat/completions",
        {"messages": [{"content": [{"type": "file", "file": {"file_id": "ID"}}]}]},
    ),
    ("files", "messages", "/v1/messages", {"messages": [{"content": [{"source": {"type": "file", "file_id": "ID"}}]}]}),
    ("files", "batch", "/v1/batches", {"input_file_id": "ID"}),
    ("files", "vector store", "/v1/vector_stores", {"file_ids": ["ID"]}),
    ("files", "own vector store", "/v1/vector_stores/OWN/files", {"file_id": "ID"}),
    ("files", "own container", "/v1/containers/OWN/files", {"file_id": "ID"}),
    ("files", "deep", "/v1/responses", {"input": [[[[{"a": {"b": {"file_id": "ID"}}}]]]]}),
    ("files", "message batch", "/v1/messages/batches", {"requests": [{"params": {"messages": [{"file_id": "ID"}]}}]}),
    ("files", "image edit", "/v1/images/edits", {"images": [{"file_id": "ID"}]}),
    ("vector_stores", "tool", "/v1/responses", {"tools": [{"type": "file_search", "vector_store_ids": ["ID"]}]}),
    (
        "vector_stores",
        "store of a search",
        "/v1/responses",
        {"tools": [{"fileSearch": {"fileSearchStoreNames": ["ID"]}}]},
    ),
    ("vector_stores", "collection", "/v1/responses", {"tools": [{"type": "file_search", "collection_ids": ["ID"]}]}),
    (
        "vector_stores",
        "corpus",
        "/v1/chat/completions",
        {"tools": [{"retrieval": {"ragResources": [{"ragCorpus": "ID"}]}}]},
    ),
    ("vector_stores", "second", "/v1/responses", {"tools": [{"vector_store_ids": ["OWN", "ID"]}]}),
    ("containers", "text", "/v1/responses", {"tools": [{"type": "code_interpreter", "container": "ID"}]}),
    ("containers", "messages", "/v1/messages", {"container": "ID"}),
    ("containers", "object", "/v1/messages", {"container": {"id": "ID", "skills": []}}),
    ("completions", "audio", "/v1/chat/completions", {"messages": [{"role": "assistant", "audio": {"id": "ID"}}]}),
    ("batches", "batch_id", "/v1/responses", {"batch_id": "ID"}),
]
FILL = {"model": "cheap", "input": "Hello", "messages": [{"role": "user", "content": "Hello"}]}


def referring(shared: Shared, row: tuple[str, str, str, dict[str, object]], owner: str) -> tuple[str, bytes, str]:
    """The path and body of a row, with the owner's object in it; and that object's id."""
    kind, _, path, body = row
    name = shared.made[owner][kind]
    own = shared.made["team-a"]["containers" if "containers" in path else "vector_stores"]
    text = json.dumps({**FILL, **body}).replace('ID"', f'{name}"').replace("_" + name + '":', '_ID":')
    return path.replace("OWN", own), text.replace("OWN", own).encode(), name


@pytest.mark.parametrize("row", REFERENCES, ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_body_may_refer_to_what_the_team_has_made_alone(
    shared: Shared, row: tuple[str, str, str, dict[str, object]]
) -> None:
    path, body, name = referring(shared, row, "team-b")
    before = len(shared.world.sent())
    reply = shared.world.call("POST", path, body, key="team-a")
    is_as_if_it_did_not_exist(shared, reply, f"msg_{name}" if b"msg_" in body else name, before)
    path, body, _ = referring(shared, row, "team-a")
    own = shared.world.call("POST", path, body, key="team-a")
    assert own.status == 200, own


@pytest.mark.parametrize(
    "written",
    [
        b'{"model":"cheap","input":"x","previous_response_id":"ID","previous_response_id":"OWN"}',
        b'{"model":"cheap","input":"x","previous_response_id":"OWN","previous_response_id":"ID"}',
        b'{"model":"cheap","input":"x","previous\\u005fresponse_id":"ID"}',
        b'{"model":"cheap","input":"x","\\u0070revious_response_id":"ID"}',
        b'{"model":"cheap","input":"x","Previous_Response_ID":"ID"}',
        b'{"model":"cheap","input":"x","previous_response_id" : "ID"}',
        b'{"model":"cheap","input":"x","previous_response_id":["ID"]}',
        b'{"model":"cheap","input":"\\ud800","previous_response_id":"ID"}',
        b'{"model":"cheap","input":NaN,"previous_response_id":"ID"}',
        b'\xef\xbb\xbf{"model":"cheap","input":"x","previous_response_id":"ID"}',
        b'{"model":"cheap","input":"x","previous_response_id":"\\u0072ESTOFID"}',
        b'{"model":"cheap","input":"x","previous_response_id":7}',
        b'{"model":"cheap","input":[{"content":[{"file_id":"ID","file_id":"OWN"}]}]}',
        b'{"model":"cheap","input":[{"content":[{"file_id":"OWN","File_id":"ID"}]}]}',
        b'{"model":"cheap","input":[{"id":"msg_ID"}]}',
        b'{"model":"cheap","input":[{"\\u0069d":"msg_ID"}]}',
        b'{"model":"cheap","input":[{"type":"message","type":"item_reference","id":"msg_ID"}]}',
    ],
)
def test_no_way_of_writing_a_reference_gets_past(shared: Shared, written: bytes) -> None:
    name, own = shared.made["team-b"]["responses"].encode(), shared.made["team-a"]["responses"].encode()
    body = written.replace(b"RESTOFID", name[1:]).replace(b'ID"', name + b'"').replace(b"OWN", own)
    body = body.replace(b"Previous_Response_" + name, b"Previous_Response_ID")
    before = len(shared.world.sent())
    for kind in ("application/json", "text/plain", "application/octet-stream"):
        reply = shared.world.call("POST", "/v1/responses", body, {"content-type": kind})
        # Of a top-level member that stands twice, the last one goes out, and no other.
        assert reply.status in (400, 404) or written.endswith(b'"previous_response_id":"OWN"}'), (kind, reply)
    assert name not in b"".join(seen.body for seen in shared.world.sent()[before:])


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/containers/OWN/files", [("file_id", "ID")]),
        ("/v1/files", [("purpose", "user_data"), ("file_id", "ID")]),
        ("/v1/images/edits", [("model", "cheap"), ("image[file_id]", "ID")]),
        ("/v1/images/edits", [("model", "cheap"), ("prompt", "x"), ("image[][File_ID]", "ID")]),
    ],
)
def test_a_form_may_not_refer_to_objects(shared: Shared, path: str, fields: list[tuple[str, str]]) -> None:
    name = shared.made["team-b"]["files"]
    body = form(*((field_name, name if value == "ID" else value) for field_name, value in fields))
    reply = shared.world.call("POST", path.replace("OWN", shared.made["team-a"]["containers"]), body, FORM)
    assert reply.status == 400, reply
    assert name not in "".join(seen.text for seen in shared.world.sent()[-1:])


@pytest.mark.parametrize("query", ["after=ID", "before=ID", "after_id=ID", "file_id=ID", "limit=5&After=ID"])
def test_a_query_names_what_the_team_has_made_alone(shared: Shared, query: str) -> None:
    name = shared.made["team-b"]["files"]
    before = len(shared.world.sent())
    reply = shared.world.call("GET", "/v1/files?" + query.replace("ID", name))
    is_as_if_it_did_not_exist(shared, reply, name, before)


@pytest.mark.parametrize("query", ["_method=GET", "a=1&_METHOD=DELETE", "%5fmethod=GET"])
def test_a_query_names_no_other_method(shared: Shared, query: str) -> None:
    before = len(shared.world.sent())
    assert shared.world.call("POST", f"/v1/vector_stores?{query}", {"name": "x"}).status == 400
    assert len(shared.world.sent()) == before


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_shows_a_team_its_own_objects(shared: Shared, kind: str) -> None:
    for key, other in (("team-a", "team-b"), ("team-b", "team-a")):
        reply = shared.world.call("GET", KINDS[kind], key=key)
        names = [row["id"] for row in reply.json["data"]]
        assert shared.made[key][kind] in names
        assert f'"{shared.made[other][kind]}"' not in reply.body.decode()
        assert (reply.json["first_id"], reply.json["last_id"]) == (names[0], names[-1])
    assert (
        shared.made["team-b"][kind] in shared.world.call("GET", f"{KINDS[kind]}?limit=100", key="master").body.decode()
    )
    assert shared.world.call("GET", KINDS[kind], key=FREE).json["data"] == [] or kind == "batches"


ACCOUNT_WIDE = [
    ("GET", "/v1/fine_tuning/jobs"), ("POST", "/v1/fine_tuning/jobs"), ("POST", "/v1/realtime/client_secrets"),
    ("POST", "/v1/realtime/sessions"), ("GET", "/v1/realtime"), ("GET", "/v1/assistants"), ("POST", "/v1/threads"),
    ("POST", "/v1/threads/runs"), ("GET", "/v1/threads/thread_1/messages"), ("POST", "/v1/threads/thread_1/messages"),
    ("GET", "/v1/evals"), ("GET", "/v1/organization/users"), ("POST", "/v1/organization/admin_api_keys"),
    ("DELETE", "/v1/models/ft:cheap"), ("POST", "/v1/webhooks"), ("GET", "/v1/responses"), ("GET", "/v1/conversations"),
    ("PUT", "/v1/files"), ("PATCH", "/v1/vector_stores/OWN"), ("GET", "/v1/skills"), ("GET", "/v1/key"),
    ("GET", "/v1/generation"), ("POST", "/v1/anything/new"), ("GET", "/v1/files/OWN/secrets"), ("GET", "/v1"),
    ("GET", "/v1/FINE_TUNING/jobs"), ("GET", "/v1/fine%5ftuning/jobs"), ("GET", "/v1/v1/fine_tuning/jobs"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ACCOUNT_WIDE)
def test_what_reaches_the_whole_account_is_off_for_teams(shared: Shared, method: str, path: str) -> None:
    before = len(shared.world.sent())
    path = path.replace("OWN", shared.made["team-a"]["vector_stores" if "stores" in path else "files"])
    reply = shared.world.call(method, path, {} if method != "GET" else None)
    assert reply.status in (403, 404), reply
    assert len(shared.world.sent()) == before


def test_a_teams_paths_turn_on_what_they_name_and_no_more(shared: Shared) -> None:
    call = shared.world.call
    assert call("GET", "/v1/fine_tuning/jobs", key=FREE).status == 200
    assert call("GET", f"/v1/batches/{shared.made['team-b']['batches']}", key=FREE).status == 200
    assert call("POST", "/v1/responses", {**FILL, "prompt": {"id": "pmpt_1"}}, key=FREE).status == 200
    assert call("POST", "/v1/responses", {**FILL, "prompt": {"id": "pmpt_1"}}).status == 404
    assert call("GET", "/v1/assistants", key=FREE).error_code == "path_not_allowed"
    assert call("GET", f"/v1/files/{shared.made['team-b']['files']}", key=FREE).status == 404
    body = {"training_file": shared.made["team-b"]["files"], "model": "cheap"}
    assert call("POST", "/v1/fine_tuning/jobs", body, key=FREE).status == 404


def test_a_prediction_is_not_stored_with_the_operators_rights(shared: Shared) -> None:
    before = len(shared.world.sent())
    body = {"instances": [{"prompt": "a cat"}], "parameters": {"storageUri": "gs://bucket/out"}}
    reply = shared.world.call("POST", "/v1/models/cheap:predict", body)
    is_as_if_it_did_not_exist(shared, reply, "gs://bucket/out", before)


def test_what_a_client_says_makes_no_object_its_own(shared: Shared) -> None:
    name = shared.made["team-b"]["containers"]
    said = {"container_id": name, "id": name, "container": {"id": name}, "output_file_id": name}
    made = shared.world.call("POST", "/v1/responses", {**FILL, "metadata": said})
    assert made.status == 200
    assert shared.world.call("GET", f"/v1/containers/{name}").status == 404
    own = f"cntr_of_{made.json['id']}"
    assert shared.world.call("GET", f"/v1/containers/{own}").status == 200, "what the provider says does"


def test_a_response_that_is_not_stored_is_nobodys(shared: Shared) -> None:
    made = shared.world.call("POST", "/v1/responses", {**FILL, "store": False}).json["id"]
    assert shared.world.call("GET", f"/v1/responses/{made}").status == 404
    completion = shared.world.call("POST", "/v1/chat/completions", {"model": "cheap", "messages": FILL["messages"]})
    assert shared.world.call("GET", f"/v1/chat/completions/{completion.json['id']}").status == 404


def test_a_deleted_object_is_gone(shared: Shared) -> None:
    made = shared.create("files", "team-a").json["id"]
    assert shared.world.call("DELETE", f"/v1/files/{made}").status == 200
    before = len(shared.world.sent())
    assert shared.world.call("GET", f"/v1/files/{made}").status == 404
    assert len(shared.world.sent()) == before


def test_a_request_goes_where_its_objects_live(shared: Shared) -> None:
    far = shared.create("responses", "team-a", model="dear").json["id"]
    assert far in shared.beta.objects
    assert shared.world.call("GET", f"/v1/responses/{far}").json["id"] == far
    assert shared.world.sent("beta")[-1].path == f"/v1/responses/{far}"
    call = shared.world.call
    assert call("POST", "/v1/responses", {**FILL, "previous_response_id": far}).error_code == "objects_apart"
    own = shared.made["team-a"]
    both = {**FILL, "model": "dear", "previous_response_id": far, "conversation": own["conversations"]}
    assert call("POST", "/v1/responses", both).error_code == "objects_apart"
    assert call("POST", "/v1/responses", {**FILL, "model": "dear", "previous_response_id": far}).status == 200


def test_an_answer_in_a_stream_is_remembered_before_it_ends(shared: Shared) -> None:
    stream = shared.world.call("POST", "/v1/responses", {**FILL, "stream": True})
    name = stream.body.decode().split('"id":"', 1)[1].split('"', 1)[0]
    assert shared.world.call("GET", f"/v1/responses/{name}").status == 200
    assert shared.world.call("GET", f"/v1/responses/{name}", key="team-b").status == 404
    assert shared.world.call("POST", "/v1/responses", {**FILL, "input": [{**ITEM, "id": f"msg_{name}"}]}).status == 200


BLANKS = " " * 70_000
BATCH_LINES = {
    "a member": '{"body":{"previous_response_id":"ID"}}',
    "an escape": '{"body":{"previous\\u005fr\\u0065sponse_id":"ID"}}',
    "far behind": "x" * 70_000 + '{"body":{"previous_response_id":"ID"}}',
    "an item": '{"url":"/v1/responses","body":{"input":[{"type":"item_reference","id":"msg_ID"}]}}',
    "an item with an escape": '{"url":"/responses","body":{"input":[{"type":"item\\u005freference","id":"msg_ID"}]}}',
    "an item without a type": '{"url":"/v1/responses","body":{"input":[{"id":"msg_ID"}]}}',
    "an item far from its address": '{"body":{"input":[{"id":"msg_ID"}]},"x":"' + BLANKS + '","url":"/responses"}',
    "an address with escapes": '{"url":"\\/v1\\/r\\u0065sponses","body":{"input":[{"\\u0069d":"msg_ID"}]}}',
    "a slash with an escape": '{"url":"\\u002Fv1\\u002Fresponses","body":{"input":[{"id":"msg_ID"}]}}',
    "a prompt": '{"body":{"prompt":{"id":"pmpt_ID"}}}',
    "a prompt far from its colon": '{"body":{"prompt"' + BLANKS + ':{"id":"pmpt_ID"}}}',
    "a prompt far from its object": '{"body":{"prompt"' + BLANKS + ":" + BLANKS + '{"id":"pmpt_ID"}}}',
}


@pytest.mark.parametrize("coding", sampled(["utf-8", "utf-16", "utf-32-be"], 3))
@pytest.mark.parametrize("name", BATCH_LINES)
def test_a_batchs_file_may_not_refer_to_objects(shared: Shared, name: str, coding: str) -> None:
    text = BATCH_LINES[name].replace("ID", shared.made["team-b"]["responses"])
    front = b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    file = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' + text.encode(coding)
    made = shared.world.call("POST", "/v1/files", front + file + b"\r\n--b--\r\n", FORM).json["id"]
    assert shared.world.call("GET", f"/v1/files/{made}").status == 200
    assert shared.world.call("POST", "/v1/batches", {"input_file_id": made}).error_code == "path_not_allowed"


def test_a_batchs_file_of_plain_requests_may_be_used(shared: Shared) -> None:
    calls = [{"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function"}]}]
    chats = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": calls}}
    asks = {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": {"input": "Hello", "prompt": None}}
    for line in (chats, asks):
        text = "\n".join([json.dumps(line)] * 2000)
        made = shared.world.call("POST", "/v1/files", form(("purpose", "batch"), ("file", text)), FORM).json["id"]
        assert shared.world.call("POST", "/v1/batches", {"input_file_id": made}).status == 200


# Bills


def background(shared: Shared, key: str = "team-a", **more: object) -> str:
    reply = shared.create("responses", key, background=True, **more)
    assert reply.status == 200
    return str(reply.json["id"])


def test_a_background_response_is_billed_once_at_its_own_model(shared: Shared) -> None:
    before = shared.world.spent("team-a")
    name = background(shared, model="dear")
    shared.world.call("GET", f"/v1/responses/{name}")
    assert shared.world.spent("team-a") == pytest.approx(before)
    shared.beta.finish()
    path = f"/v1/responses/{name}"
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: shared.world.call("GET", path), range(16)))
    assert {reply.status for reply in replies} == {200}
    shared.world.call("GET", f"{path}?stream=true&starting_after=0")
    shared.world.call("POST", f"{path}/cancel")
    shared.world.call("GET", path, key="master")
    assert shared.world.spent("team-a") - before == pytest.approx(BACKGROUND_USD)
    billed = [entry for entry in shared.world.ledger("team-a") if entry.model == "dear" and entry.cost]
    assert (billed[-1].plain_tokens, billed[-1].output_tokens) == (USAGE["input_tokens"], USAGE["output_tokens"])


def test_whoever_sees_the_end_takes_the_bill_with_it(shared: Shared) -> None:
    name = background(shared)
    shared.alpha.finish()
    assert shared.world.call("GET", f"/v1/responses/{name}").status == 200
    assert shared.world.spent("team-a") > 0
    assert shared.world.bill("team-a", name) == ""


@pytest.mark.parametrize("way", ["?stream=true&starting_after=0", "/cancel"])
def test_a_background_response_is_billed_however_its_end_is_seen(shared: Shared, way: str) -> None:
    before = shared.world.spent("team-a")
    path = f"/v1/responses/{background(shared)}"
    shared.alpha.finish()
    for _ in range(2):
        reply = shared.world.call("POST" if way == "/cancel" else "GET", path + way)
        assert reply.status == 200
    assert shared.world.spent("team-a") - before == pytest.approx(BACKGROUND_USD)


@pytest.mark.parametrize("usage", [None, USAGE])
def test_a_background_response_that_is_cancelled_is_billed(shared: Shared, usage: dict[str, int] | None) -> None:
    """Where its usage is not reported, it is booked as any other answer without a usage."""
    before, text = shared.world.spent("team-a"), "word " * 1000
    name = background(shared, input=text)
    shared.alpha.objects[name]["usage"] = usage
    for _ in range(2):
        assert shared.world.call("POST", f"/v1/responses/{name}/cancel").json["status"] == "cancelled"
    booked = next(one for one in shared.world.ledger("team-a")[::-1] if one.cost)
    assert booked.estimated == (usage is None)
    assert shared.world.spent("team-a") - before == pytest.approx(booked.cost / NANOS_PER_USD)
    assert booked.plain_tokens == (USAGE["input_tokens"] if usage else pytest.approx(len(text) / 4, rel=0.1))
    assert booked.output_tokens > 0


def test_a_background_response_of_the_master_is_billed_once(shared: Shared) -> None:
    before = shared.world.spent("default")
    path = f"/v1/responses/{background(shared, 'master')}"
    shared.alpha.finish()
    for _ in range(3):
        shared.world.call("GET", path, key="master")
    assert shared.world.spent("default") - before == pytest.approx(BACKGROUND_USD)


def test_to_read_an_object_costs_nothing(shared: Shared) -> None:
    own = shared.made["team-a"]
    before, entries = shared.world.spent("team-a"), len(shared.world.ledger("team-a"))
    for kind in ("responses", "completions"):
        for key in ("team-a", "master"):
            assert "usage" in shared.world.call("GET", f"{KINDS[kind]}/{own[kind]}", key=key).json
    shared.world.call("POST", f"{KINDS['completions']}/{own['completions']}", {"metadata": {"a": "b"}})
    shared.world.call("GET", f"{KINDS['completions']}")
    assert shared.world.spent("team-a") == pytest.approx(before)
    read = shared.world.ledger("team-a")[entries:]
    assert len(read) == 4
    assert [entry.plain_tokens + entry.output_tokens for entry in read] == [0] * 4, "tokens are counted once, too"
    lines = [line for line in shared.world.log.splitlines() if any(entry.exchange_id in line for entry in read)]
    assert [" prompt=" in line for line in lines] == [False] * 4, lines


def test_a_budget_of_tokens_counts_a_background_response_once() -> None:
    with world_of(CONFIG.replace("budget: {usd: 0.05}", "budget: {tokens: 400}")) as world:
        account = Account("alpha")
        world.providers["alpha"].script = account
        shared = Shared(world, account, Account("beta"))
        made = shared.create("responses", "tight", background=True, max_output_tokens=100)
        account.finish()
        polls = [world.call("GET", f"/v1/responses/{made.json['id']}", key="tight").status for _ in range(20)]
        assert polls == [200] * 20
        assert shared.create("responses", "tight", max_output_tokens=100).status == 200
        entries = world.ledger("tight")
        assert sum(one.plain_tokens + one.output_tokens for one in entries) == 2 * USAGE["total_tokens"]


def test_a_background_response_that_nobody_asks_for_stays_reserved() -> None:
    with world_of(CONFIG) as world:
        account = Account("alpha")
        world.providers["alpha"].script = account
        shared = Shared(world, account, Account("beta"))
        # 0.05 USD: each of these may cost 0.02.
        replies = [shared.create("responses", "tight", background=True, max_output_tokens=2000) for _ in range(4)]
        assert [reply.status for reply in replies] == [200, 200, 429, 429]
        account.finish()
        assert world.call("GET", f"/v1/responses/{replies[0].json['id']}", key="tight").status == 200
        assert shared.create("responses", "tight", background=True, max_output_tokens=2000).status == 200


# Where nobody is confined


def test_a_master_key_alone_changes_nothing() -> None:
    config = (
        MODELS + "\ngeneral_settings: {master_key: sk-master-7d1fC0ffee00ab93e1}\nstratiform:\n  port: 0\n" + PRICES
    )
    with world_of(config) as world:
        check_everything_passes(world, "master")


def test_upstream_alone_changes_nothing() -> None:
    with world_of("stratiform: {port: 0}", upstream="{alpha}/v1") as world:
        check_everything_passes(world, "sk-some-key-of-the-provider")


def test_clients_with_their_own_keys_own_their_account() -> None:
    config = CONFIG.replace("  log_level: debug\n", "  log_level: debug\n  client_keys: forward\n")
    with world_of(config) as world:
        check_everything_passes(world, "sk-some-key-of-the-provider")


def check_everything_passes(world: World, key: str) -> None:
    body = {**FILL, "previous_response_id": "resp_x", "tools": [{"vector_store_ids": ["vs_x"]}]}
    for method, path in [*ACCOUNT_WIDE, ("GET", "/v1/files/file_x"), ("GET", "/v1/files"), ("DELETE", "/v1/files/x")]:
        if path in ("/v1", "/v1/realtime"):
            continue
        reply = world.call(method, path, {} if method != "GET" else None, key=key)
        assert reply.status == 200, (method, path, reply)
    for path in ("/v1/responses", "/v1/chat/completions", "/v1/vector_stores"):
        assert world.call("POST", path, body, key=key).status == 200
        assert b"resp_x" in world.sent()[-1].body
