"""From files to a report: the culprit of every break, its price and a sentence, and what the logs do not tell."""

import re
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from proxy.lab import doctor
from proxy.lab.doctor import CacheRules, CallIntake, Culprit, Entries, diagnose_all
from proxy.lab.doctor.reader import read_calls
from proxy.lab.doctor.records import LoggedCall
from proxy.lab.doctor.report import MONTH_HOURS, ClientReport, Report, advice, examine, page
from proxy.planner.diagnose import MODEL, PARAMETER, ROUTE
from proxy.planner.record import VERSION, Fingerprint, line_of, wire_record
from proxy.protocol.prices import PriceMap
from proxy.protocol.providers import ANTHROPIC, OPENAI, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from tests import doctor_logs as logs
from tests.examples import sampled
from tests.unit.lab.replay.sessions import setting
from tests.unit.planner.test_record_wire_traces import TRACES, WHERE, judged

_PRICE = {
    "input_cost_per_token": 3e-6,
    "output_cost_per_token": 15e-6,
    "cache_read_input_token_cost": 0.3e-6,
    "cache_creation_input_token_cost": 3.75e-6,
}
PRICES = PriceMap({logs.MODEL: _PRICE, "gpt-5.5": {**_PRICE, "cache_creation_input_token_cost": 0}})


def _examined(*paths: Path, given: CacheProfile | None = None, prices: PriceMap = PRICES) -> Report:
    return examine(paths, CacheRules(prices, given), setting(), lambda path, read, size: None)


def _written(folder: Path, content: bytes, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _client(folder: Path, content: bytes) -> ClientReport:
    (client,) = _examined(_written(folder, content)).clients
    return client


@pytest.mark.parametrize("name", logs.WITH_REQUESTS)
def test_the_clock_is_named_in_every_log(name: str, tmp_path: Path) -> None:
    spoken = logs.talk(6)
    client = _client(tmp_path, logs.WITH_REQUESTS[name](spoken))
    worst = client.culprits[0]
    assert (worst.kind, worst.piece_kind, worst.line, worst.sign, worst.is_waste) == (
        "changed",
        "system",
        3,
        "time",
        True,
    )
    assert worst.breaks == len(spoken) - 1
    assert worst.advice.startswith("line 3 of your system text is a clock: $")
    assert "put it behind the last user message" in worst.advice
    assert (client.client, client.calls, client.hit_ratio) == ("helper", 6, 0.0)


def test_the_loss_is_what_reading_would_have_saved(tmp_path: Path) -> None:
    """All that was written again could have been read: each prompt up to what the one before it has stored."""
    spoken = logs.talk()
    client = _client(tmp_path, logs.recording(spoken))
    written = [s.usage["cache_creation_input_tokens"] for s in spoken]
    lost_usd = sum(written[:-1]) * (3.75e-6 - 0.3e-6)
    assert client.lost_usd == pytest.approx(lost_usd, rel=0.03)
    hours = max(1.0, 11 * 20 / 3600)
    assert client.lost_usd_month == pytest.approx(client.lost_usd * MONTH_HOURS / hours)
    assert client.context_written == pytest.approx(sum(written + [4] * 12) / (written[-1] + 4))


def test_mode_tier_saves_what_the_clock_costs(tmp_path: Path) -> None:
    client = _client(tmp_path, logs.recording(logs.talk()))
    shares = {mode.mode: mode.cost_share for mode in client.modes}
    assert shares["passthrough"] == 1
    assert shares["tier"] < 0.5
    assert client.culprits[0].tier_saves_month == pytest.approx(client.modes[-1].saved_usd_month, rel=0.2)
    assert "or let mode tier do it: $" in client.culprits[0].advice


def test_a_conversation_that_appends_has_no_culprit(tmp_path: Path) -> None:
    client = _client(tmp_path, logs.recording(logs.talk(has_clock=False)))
    assert [culprit for culprit in client.culprits if culprit.lost_tokens] == []
    assert client.context_written is not None
    assert client.context_written < 1.6
    assert (client.hit_ratio or 0) > 0.8


def test_the_order_of_a_log_does_not_matter(tmp_path: Path) -> None:
    lines = logs.recording(logs.talk()).splitlines(keepends=True)
    forward = _client(tmp_path, b"".join(lines))
    assert asdict(_client(tmp_path, b"".join(reversed(lines)))) == asdict(forward)


def test_without_usage_the_rules_of_the_cache_tell_the_loss(tmp_path: Path) -> None:
    rows = [orjson.loads(line) for line in logs.recording(logs.talk()).splitlines()]
    told = _client(tmp_path, logs.json_lines(rows))
    untold = _client(tmp_path, logs.json_lines([{**row, "response": None} for row in rows]))
    assert untold.lost_usd == pytest.approx(told.lost_usd, rel=0.1)
    assert (untold.hit_ratio, untold.context_written) == (None, None)
    assert untold.gaps == [
        "12 of 12 calls have no usage: costs and losses follow the rules of the provider's cache, not its reports"
    ]


def test_without_times_nothing_is_told_of_a_month(tmp_path: Path) -> None:
    rows = [orjson.loads(line) for line in logs.recording(logs.talk()).splitlines()]
    client = _client(tmp_path, logs.json_lines([{k: v for k, v in row.items() if k != "t"} for row in rows]))
    assert (client.hours, client.lost_usd_month) == (None, None)
    assert client.lost_usd > 0
    assert "tokens in 11 requests" in client.culprits[0].advice


def test_a_model_without_a_price_counts_in_tokens(tmp_path: Path) -> None:
    report = _examined(_written(tmp_path, logs.recording(logs.talk())), prices=PriceMap({}))
    (client,) = report.clients
    assert (client.lost_usd, client.lost_usd_month, report.lost_usd_month) == (0, None, None)
    assert client.culprits[0].lost_tokens > 0
    assert "12 of 12 calls are of a model whose price is not known: they count in tokens, not in USD" in client.gaps


def _claude_code(change: Callable[[list[dict[str, Any]]], None]) -> bytes:
    rows = [orjson.loads(line) for line in logs.claude_code(logs.talk(6, has_clock=False)).splitlines()]
    change(rows)
    return logs.json_lines(rows)


def _miss(rows: list[dict[str, Any]]) -> None:
    for row in rows[-3:]:
        if row["type"] == "assistant":
            usage = row["message"]["usage"]
            usage["cache_creation_input_tokens"] += usage["cache_read_input_tokens"]
            usage["cache_read_input_tokens"] = 0


def _pause(rows: list[dict[str, Any]]) -> None:
    _miss(rows)
    for row in rows[-3:]:
        row["timestamp"] = "2027-01-01T00:00:00Z"


def _switch(rows: list[dict[str, Any]]) -> None:
    _miss(rows)
    for row in rows[-2:]:
        row["message"]["model"] = "claude-haiku-4-5"


def _compact(rows: list[dict[str, Any]]) -> None:
    _miss(rows)
    rows.insert(-3, {"type": "system", "subtype": "compact_boundary", "sessionId": "s1"})


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (_miss, [("changed", True)]),
        (_pause, [("expired", False)]),
        (_switch, [("model-switched", False)]),
        (_compact, []),
    ],
)
def test_claude_code_tells_what_usage_and_time_can(
    change: Callable[[list[dict[str, Any]]], None], kinds: list[tuple[str, bool]], tmp_path: Path
) -> None:
    client = _client(tmp_path, _claude_code(change))
    assert [(culprit.kind, culprit.is_waste) for culprit in client.culprits] == kinds
    assert any("have no request" in gap for gap in client.gaps)


def test_the_provider_s_own_cause_is_compared(tmp_path: Path) -> None:
    rows = [orjson.loads(line) for line in logs.recording(logs.talk()).splitlines()]
    for number, row in enumerate(rows):
        kind = "system_changed" if number % 4 else "tools_changed"
        row["response"]["diagnostics"] = {"cache_miss_reason": {"type": kind}}
    client = _client(tmp_path, logs.json_lines(rows))
    assert (client.causes_compared, client.cause_agreement) == (11, 9 / 11)


def test_nothing_of_a_prompt_is_kept_shown_or_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: (tmp_path / "kept").open("w+b"))
    report = _examined(*(_written(tmp_path, write(logs.talk()), name) for name, write in logs.WITH_REQUESTS.items()))
    stored = (tmp_path / "kept").read_bytes()
    assert len(stored) > 1000
    for text in (stored, orjson.dumps(asdict(report)), page(report).encode()):
        assert logs.SECRET.encode() not in text
        assert b"You are a helper" not in text


@pytest.mark.parametrize("name", sampled(logs.WITH_REQUESTS, 6))
def test_a_key_is_not_shown_whichever_word_of_a_log_it_stands_for(name: str, tmp_path: Path) -> None:
    key, log = "sk-ant-api03-9Xq2bVtR7LmZ4kWc", logs.WITH_REQUESTS[name](logs.talk(2))
    words = sorted(set(re.findall(rb"[A-Za-z_][\w.-]+", log)))
    report = _examined(
        *(_written(tmp_path, log.replace(word, key.encode()), f"{number}.log") for number, word in enumerate(words))
    )
    assert report.calls > len(words)
    for text in (orjson.dumps(asdict(report)).decode(), page(report)):
        assert key not in text


@pytest.mark.slow
def test_the_lines_of_system_texts_count_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_SESSIONS_BYTES", 4 << 20)
    text = "\n".join(f"Rule {number}" for number in range(1_900))
    path = _written(tmp_path, b"")
    with path.open("wb") as file:
        for number in range(240):
            messages = [{"role": "system", "content": text}, {"role": "user", "content": f"q{number}"}]
            row = {"t": number, "session": f"s{number % 80}", "request": {"model": "m", "messages": messages}}
            file.write(orjson.dumps(row) + b"\n")
    tracemalloc.start()
    try:
        with closing(Entries()) as entries:
            intake = CallIntake(entries, bytes_over_four)
            for call in read_calls(path, lambda read, size: None):
                assert isinstance(call, LoggedCall)
                intake.take(replace(call, is_chat=False))
            tracemalloc.reset_peak()
            diagnose_all(entries, intake.clients, CacheRules(PRICES))
            assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()


def test_a_first_image_is_told_as_what_it_is(tmp_path: Path) -> None:
    spoken = logs.talk(4, has_clock=False)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for one in spoken[2:]:
        one.body["messages"].insert(5, {"role": "user", "content": [image]})
    rows = [{"t": one.at, "session": "s", "request": one.body} for one in spoken]
    (culprit,) = _client(tmp_path, logs.json_lines(rows)).culprits
    assert (culprit.kind, culprit.piece, culprit.breaks, culprit.is_waste) == ("parameters", "images", 1, False)
    assert culprit.advice.startswith("whether any image is shown changes within conversations: $")


def test_a_client_that_is_named_by_a_digest_of_its_key_keeps_its_name(tmp_path: Path) -> None:
    row = {**orjson.loads(logs.litellm_lines(logs.talk(1))), "metadata": {}, "user": ""}
    assert _client(tmp_path, logs.json_lines([row])).client == row["api_key"]


def test_the_page_holds_its_pictures_and_loads_nothing(tmp_path: Path) -> None:
    shown = page(_examined(_written(tmp_path, logs.recording(logs.talk()))))
    assert shown.count("<svg") >= 2
    assert "line 3 of your system text is a clock" in shown
    assert "prefers-color-scheme: dark" in shown
    for loading in ("<script", "<link", "<img", "@import", "url(", " src="):
        assert loading not in shown
    assert "http" not in shown.replace("http://www.w3.org/2000/svg", "")


def test_names_of_others_are_text_in_the_page(tmp_path: Path) -> None:
    rows = [orjson.loads(line) for line in logs.recording(logs.talk()).splitlines()]
    shown = page(
        _examined(_written(tmp_path, logs.json_lines([{**row, "client": "<b onload=x>\x1b[2J"} for row in rows])))
    )
    assert "<b onload" not in shown
    assert "&lt;b onload=x&gt;\\x1b[2J" in shown


def test_a_folder_is_told_and_its_logs_are_read(tmp_path: Path) -> None:
    inner = tmp_path / "projects" / "one"
    inner.mkdir(parents=True)
    _written(inner, logs.claude_code(logs.talk(3)), "a.jsonl")
    _written(inner, b"no log", "notes.txt")
    report = _examined(tmp_path)
    assert (report.files, report.calls) == (1, 3)
    assert [problem.text for problem in report.problems] == ["is a directory: the 1 logs in it are read"]


def test_a_log_of_another_product_is_told_once(tmp_path: Path) -> None:
    report = _examined(_written(tmp_path, b'{"level":"info","msg":"GET /"}\n' * 50))
    assert report.calls == 0
    assert [(problem.line, problem.count) for problem in report.problems] == [(1, 50)]


@pytest.mark.slow
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_the_pieces_that_differ_on_the_wire_are_those_that_are_named(path: Path) -> None:
    """Judged by a checker that imports nothing of the product."""
    expected = judged(path)
    seen = Counter(
        (next(iter(broken.where)) if len(broken.where) == 1 else "", broken.line)
        for number, broken in expected.seen.items()
        if number not in expected.beside
    )
    named: Counter[tuple[str, int]] = Counter()
    calls = [call for call in read_calls(path, lambda read, size: None) if isinstance(call, LoggedCall)]
    is_messages = not calls[0].is_chat and b'"messages"' in (calls[0].body or b"")
    profile = ANTHROPIC if is_messages else OPENAI
    with closing(Entries()) as entries:
        intake = CallIntake(entries, bytes_over_four)
        for call in calls:
            intake.take(call)
        diagnose_all(entries, intake.clients, CacheRules(PRICES, profile))
    for client in intake.clients.values():
        for culprit, loss in client.losses.items():
            if culprit.piece_kind not in ("", PARAMETER, MODEL, ROUTE):
                named[WHERE.get(culprit.piece_kind, "talk"), culprit.line] += loss.breaks
    assert named.total() == seen.total()
    assert not {key: count for key, count in (seen - named).items() if key[0]}


def test_fingerprints_name_the_same_culprit_without_text(tmp_path: Path) -> None:
    told = logs.talk()
    lines = b""
    for s in told:
        usage = Usage(sum(s.usage.values()) - 20, 20, 0, s.usage["cache_creation_input_tokens"])
        record = wire_record(s.body, bytes_over_four, at=s.at)
        figures = (usage.prompt, usage.output, usage.read, usage.write_5m, usage.write_1h)
        written = Fingerprint(VERSION, "s1", logs.MODEL, record, "helper", "anthropic", figures)
        lines += line_of(written, b"key")
    bad = lines.splitlines(keepends=True)[0].replace(b'"v":1', b'"v":9')
    assert logs.SECRET.encode() not in lines
    report = _examined(_written(tmp_path, lines + bad))
    (client,) = report.clients
    worst = client.culprits[0]
    assert (worst.kind, worst.piece_kind, worst.line, worst.breaks) == ("changed", "system", 3, 11)
    assert worst.advice.startswith("line 3 of your system text changes: $")
    assert client.lost_usd == pytest.approx(_client(tmp_path, logs.recording(told)).lost_usd, rel=0.01)
    assert [problem.text for problem in report.problems] == ["holds a fingerprint of another version, or a damaged one"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [({"prompt_cache_key"}, "with the same prompt_cache_key"), ({""}, "at one account"), (set(), "at one account")],
)
def test_the_remedy_fits_the_provider(keys: set[str], told: str) -> None:
    culprit = Culprit("partitioned", "", "", 0, "", is_waste=False)
    assert told in advice(culprit, "$1", "", keys)
