"""The defences, and what removes each of them: a defence whose removal no case notices is not guarded.

``make defences`` runs, for each of them, its cases in a process of their own in which it is gone, and lists those
that nothing noticed. ``pytest --without NAME ...`` does the same to any tests by hand. A removal replaces one function,
method or constant wherever it was imported; what it is replaced by is made from what was there.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import orjson

from proxy.cli.serve import settings_of
from proxy.context import Section
from proxy.engine.intake import Further
from proxy.models.bound import InputBound
from proxy.protocol.account import Act, Operation
from proxy.protocol.request.demand import PLAIN
from proxy.protocol.wire.json_body import utf8
from tests import patching

_ROOT = Path(__file__).parents[2]
_HERE = "tests/security/"
_TIME_S = 300
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Defence:
    """``where`` is a module and a name in it (``proxy.engine.headers:named_by``,
    ``proxy.teams.authentication:Identity.is_master``); ``becomes`` makes what stands there instead; ``cases`` are the
    tests of which one must fail then."""

    name: str
    where: str
    becomes: Callable[[Any], Any]
    cases: Sequence[str]


def always(value: object) -> Callable[[Any], Any]:
    """A function that answers this, whatever it is asked."""
    return lambda old: lambda *_, **__: value


def same(old: Any) -> Any:
    """A function that answers its first argument."""
    return lambda first, *_, **__: first


def nothing(old: Any) -> Any:
    """A method that does nothing."""
    return lambda *_, **__: None


def idle(old: Any) -> Any:
    """A method to wait for that does nothing."""

    async def does_nothing(*_: object, **__: object) -> None:
        return None

    return does_nothing


def empty(old: Any) -> Any:
    """The constant without its items."""
    return type(old)()


def never(old: Any) -> Any:
    """A pattern that matches nothing."""
    return re.compile(b"(?!)" if isinstance(old.pattern, bytes) else "(?!)")


def _unknown_asks(old: Any) -> Any:
    """The table of paths, where what it does not know asks and makes nothing."""

    def operation_of(method: str, segments: Sequence[str]) -> Operation:
        found: Operation = old(method, segments)
        return replace(found, act=Act.ASK) if found.act is Act.UNKNOWN else found

    return operation_of


def _bill_stays(old: Any) -> Any:
    """The bill of an object, as often as it is asked for."""

    async def take_bill(self: Any, team: str, name: str) -> str:
        (record,) = await self.owned(team, [name])
        return record.bill if record is not None else ""

    return take_bill


async def _granted(*_: object, **__: object) -> bool:
    """Whatever is asked for is granted."""
    return True


DEFENCES = (
    # Who may enter
    Defence("expiry and revocation", "proxy.teams.authentication:_check_good", nothing, ["test_authentication.py"]),
    Defence("the master key", "proxy.teams.authentication:Identity.is_master", always(True), ["test_admin.py"]),
    Defence("a door that stays shut", "proxy.teams.authentication:Declared.is_empty",
            lambda old: property(lambda self: True),
            ["test_authentication.py"]),
    Defence("the whole key", "proxy.teams.authentication:digest_of", lambda old: lambda key: old(key[:12].lower()),
            ["test_authentication.py"]),
    Defence("the key of the metrics", "proxy.app.settings.schema:MetricsPage.secret",
            lambda old: property(lambda self: ""), ["test_authentication.py"]),
    # What goes upstream
    Defence("no credentials upstream", "proxy.engine.headers:CREDENTIAL_HEADERS", empty, ["test_authentication.py"]),
    Defence("no secrets in other headers", "proxy.engine.headers:_own_secrets", always(()), ["test_keys.py"]),
    Defence("no keys in queries", "proxy.engine.headers:_is_dropped", always(False), ["test_keys.py"]),
    Defence("no keys in paths", "proxy.engine.headers:refuse_key_in_path", nothing, ["test_keys.py"]),
    Defence("whose account pays", "proxy.engine.headers:ACCOUNT_HEADERS", empty, ["test_keys.py"]),
    Defence("headers that make another request", "proxy.engine.headers:_ANOTHER_REQUEST", empty, ["test_keys.py"]),
    Defence("addresses in headers", "proxy.engine.headers:_ADDRESS", lambda old: re.compile("(?!)"), ["test_ssrf.py"]),
    Defence("pages of other sites", "proxy.engine.headers:_check_site", nothing, ["test_other_sites.py"]),
    Defence("headers of the connection", "proxy.engine.headers:_dropped", lambda old: lambda headers, fixed: fixed,
            ["test_keys.py"]),
    Defence("the fixed headers of the connection", "proxy.engine.headers:_REQUEST_DROPPED",
            lambda old: frozenset({"host", "content-length", "accept-encoding"}), ["test_keys.py"]),
    Defence("cookies of the provider", "proxy.engine.headers:_ANSWER_DROPPED", lambda old: old - {"set-cookie"},
            ["test_isolation.py"]),
    # Addresses
    Defence("paths of one reading", "proxy.app.web:read_path", nothing, ["test_keys.py"]),
    Defence("redirects are not followed", "aiohttp:ClientSession.request",
            lambda old: lambda self, *args, **more: old(self, *args, **{**more, "allow_redirects": True}),
            ["test_ssrf.py::test_a_redirect_is_passed_on_and_not_followed"]),
    Defence("litellm follows no redirects", "proxy.upstream.litellm_library:_follows_redirects", always(True),
            ["test_ssrf.py::test_litellm_follows_no_redirect"]),
    Defence("methods", "proxy.app.web:_METHODS", lambda old: (*old, "TRACE"),
            ["../unit/app/web/test_init.py"]),
    Defence("litellm's settings", "proxy.upstream.litellm_library:_SETTING", never,
            ["test_ssrf.py::test_a_name_that_stands_for_a_place_or_a_key_is_refused_where_litellm_could_obey_it"]),
    Defence("litellm's arguments", "proxy.upstream.litellm_library:_native", same,
            ["test_ssrf.py::test_a_name_that_stands_for_a_place_or_a_key_is_refused_where_litellm_could_obey_it"]),
    # The wire
    Defence("the size of heads", "proxy.app.web.connection:_GuardedProtocol._head_error", nothing,
            ["test_smuggling.py"]),
    Defence("the time of heads", "proxy.app.web.connection:_GuardedProtocol._on_deadline", nothing,
            ["../unit/app/web/test_connection_guard.py"]),
    Defence("the size of bodies", "proxy.app.web.connection:form_of",
            lambda old: lambda headers: old(headers)._replace(length=None),
            ["../unit/app/web/test_connection.py"]),
    Defence("trailers are no headers", "proxy.app.web.connection:_GuardedProtocol.on_headers_complete",
            lambda old: lambda self: setattr(self, "headers", (self.headers, old(self))[0]),
            ["test_keys.py"]),
    # Models
    Defence("lists of models", "proxy.protocol.access:allows", always(True), ["test_rights.py"]),
    Defence("models in members of a body", "proxy.protocol.access:_read_members",
            lambda old: lambda members, found: found.add([msgspec.json.decode(bytes(members["model"]))]),
            ["test_rights.py"]),
    Defence("models in tools", "proxy.protocol.access:is_plain_function", always(True), ["test_rights.py"]),
    Defence("models in queries", "proxy.protocol.access:_read_query", nothing, ["test_rights.py"]),
    Defence("models in headers", "proxy.protocol.access:_read_headers", nothing, ["test_rights.py"]),
    Defence("the model of Azure's path", "proxy.engine.bodies:addressed", same, ["test_rights.py"]),
    Defence("a form that names another model than its path", "proxy.engine.bodies:check_addressed", nothing,
            ["test_rights.py"]),
    Defence("models in paths", "proxy.protocol.access:place_of", always(None), ["test_rights.py"]),
    Defence("names that servers read differently", "proxy.protocol.access:check_names", nothing,
            ["test_rights.py"]),
    Defence("every name once", "proxy.protocol.request:ParsedBody.spans", always({}),
            ["../unit/engine/test_engine.py"]),
    Defence("every name once, where it cannot be taken apart", "proxy.protocol.access:join_members",
            lambda old: lambda members, changes: old(members, changes)[:-1] + b',"model":"another"}',
            ["test_rights.py"]),
    Defence("one model in a form", "proxy.engine.bodies:_may_be_model", lambda old: lambda name: name == "model",
            ["test_forms.py"]),
    Defence("a form's names are plain", "proxy.engine.bodies:_PLAIN_ENCODINGS",
            lambda old: old | {"base64", "quoted-printable"}, ["../unit/engine/test_bodies.py"]),
    Defence("names as the most lenient server reads them", "proxy.protocol.access:folded",
            lambda old: lambda name: name.lower(), ["../unit/protocol/access/test_unambiguous.py"]),
    Defence("a mark in front of the body", "proxy.protocol.access:UTF8_MARK", lambda old: b"no mark",
            ["test_rights.py"]),
    Defence("a tool that says its type once", "proxy.protocol.request.demand:_known_once",
            lambda old: lambda raw, members: members, ["test_rights.py"]),
    Defence("tools and plugins that ask a model of their own", "proxy.engine.intake:_MAY_ASK", empty,
            ["test_rights.py"]),
    Defence("names that servers take for another member", "proxy.protocol.access:folded",
            lambda old: lambda name: name, ["test_rights.py"]),
    Defence("members that may choose", "proxy.protocol.access:_may_choose", always(False), ["test_rights.py"]),
    Defence("members within that may choose", "proxy.protocol.access:chooses", always(False), ["test_rights.py"]),
    Defence("presets", "proxy.protocol.access:_PRESET", lambda old: "no preset", ["test_rights.py"]),
    Defence("what is not understood, for keys with a list", "proxy.engine.intake:reach_of",
            lambda old: lambda asked: replace(old(asked), unread="", beyond=""), ["test_rights.py"]),
    Defence("paths that name no model", "proxy.engine.intake:reach_of",
            lambda old: lambda asked: replace(old(asked), is_foreign=False), ["test_rights.py"]),
    Defence("what a key may ask for", "proxy.engine.intake:permitted", same, ["test_rights.py"]),
    Defence("names that mean one model", "proxy.protocol.access:is_ordinary", always(True), ["test_rights.py"]),
    Defence("further models", "proxy.engine.intake:further_of", always(Further()), ["test_rights.py"]),
    Defence("further models by their names there", "proxy.engine.intake:_is_called", always(True), ["test_rights.py"]),
    Defence("further models of the same upstream", "proxy.engine.intake:is_same_upstream", always(True),
            ["test_rights.py"]),
    Defence("what has no known price under a limit", "proxy.engine.intake:refuse_unpriced", nothing,
            ["test_rights.py"]),
    Defence("compressed bodies", "proxy.engine.bodies:is_compressed", always(False), ["test_rights.py"]),
    # Structured context
    Defence("texts by key", "proxy.context.session:Uploads.resolve",
            lambda old: lambda self, form, scope: old(self, form, "everybody"), ["test_structured_context.py"]),
    Defence("the size that a request stands for", "proxy.engine.exchange:Exchange.stands_for", nothing,
            ["test_structured_context.py"]),
    Defence("sections that are not read", "proxy.engine.chat:_section",
            lambda old: lambda found: Section() if found.members is None else old(found),
            ["test_structured_context.py"]),
    Defence("conversations that outgrow their share", "proxy.services.context_sessions:ContextSessions.begun",
            lambda old: lambda self, scope, name: self.session(scope, name), ["test_structured_context.py"]),
    Defence("long texts beside the event loop", "proxy.context:StructuredContext.chars",
            lambda old: property(lambda self: 0), ["test_structured_context.py"]),
    Defence("what a short request unfolds to", "proxy.services.context_assembler:ContextAssembler._check_size", nothing,
            ["test_unfolding.py"]),
    Defence("short messages and files in thousands", "proxy.services.planner_port:work_in", lambda old: len,
            ["test_unfolding.py"]),
    Defence("texts that are dear to parse", "plugins.symbol_index.indexer:TimeBudget.is_spent",
            lambda old: property(lambda self: False), ["test_unfolding.py"]),
    Defence("events in small pieces", "proxy.upstream.http:EVENT_PIECE_BYTES", lambda old: 1 << 30,
            ["test_unfolding.py"]),
    # Money
    Defence("hidden thinking", "proxy.models.charges:Speeds.tokens_per_s", always(0.0),
            ["test_unanswered.py::test_what_was_sent_and_not_answered_is_paid_for"]),
    Defence("calls without an answer", "proxy.kit.errors:UpstreamError.may_bill", lambda old: False,
            ["test_unanswered.py::test_what_was_sent_and_not_answered_is_paid_for"]),
    Defence("calls that run on", "proxy.models.charges:runs_on", always(False),
            ["test_unanswered.py::test_what_was_sent_and_not_answered_is_paid_for"]),
    Defence("a reservation for each attempt", "proxy.teams.reservations:BudgetReservations.extend",
            lambda old: _granted,
            ["test_unanswered.py::test_every_attempt_of_a_request_fits_what_was_set_aside"]),
    Defence("a reservation for each further call", "proxy.teams.reservations:BudgetReservations.extend",
            lambda old: _granted,
            ["test_live_panels.py::test_each_call_of_a_panel_may_use_its_whole_output_limit"]),
    Defence("rounds of tools", "proxy.models.charges:most_read", lambda old: lambda price, calls, prompt: prompt,
            ["test_whole_bill.py::test_a_hard_budget_holds"]),
    Defence("the memory of containers", "proxy.protocol.request.demand:_gib", always(0),
            ["test_whole_bill.py::test_a_hard_budget_holds"]),
    Defence("how long sound lasts", "proxy.engine.bodies:longest_s", always(1.0),
            ["test_unanswered.py::test_sound_lasts_as_long_as_its_file_says"]),
    Defence("the hard limit", "proxy.teams.reservations:booked",
            lambda old: lambda *given: replace(made := old(*given), charge=replace(made.charge, limit=None)),
            ["test_usage_lies.py"]),
    Defence("counts are no negative numbers", "proxy.protocol.response.usage:_counters",
            lambda old: lambda holder, most=0: {name: value for name, value in (holder or {}).items()
                                                if type(value) is int}, ["test_usage_lies.py"]),
    Defence("limits by path", "proxy.protocol.request.demand:positive", lambda old: lambda raw: 1, ["test_money.py"]),
    Defence("the largest of several limits", "proxy.protocol.request.demand:_text_demand",
            lambda old: lambda *given: replace(made := old(*given), max_output_tokens=made.max_output_tokens and 1),
            ["test_money.py"]),
    Defence("what a server could take for a limit", "proxy.protocol.request.demand:_text_demand",
            lambda old: lambda *given: replace(old(*given), least_output_tokens=0),
            ["../unit/protocol/request/test_demand.py"]),
    Defence("counts of answers", "proxy.protocol.request.demand:_count", lambda old: lambda raw: 1, ["test_money.py"]),
    Defence("counts of prompts", "proxy.protocol.request.demand:_prompts", lambda old: lambda raw: 1,
            ["test_money.py"]),
    Defence("members that nobody knows", "proxy.models.bound:weigh",
            lambda old: lambda name, *given: old(name, *given) if name == "messages" else InputBound(counted=0),
            ["test_prompt_bounds.py"]),
    Defence("members of messages that nobody knows", "proxy.models.bound:of_bytes", always(0),
            ["test_prompt_bounds.py"]),
    Defence("the longer form of a text", "proxy.models.bound:_most", lambda old: lambda text: len(utf8(text)),
            ["test_prompt_bounds.py"]),
    Defence("counts of whole texts", "proxy.services:is_counted_by", always(True),
            ["test_prompt_bounds.py"]),
    Defence("what a picture costs", "proxy.models.bound:picture_tokens", always(0), ["test_prompt_bounds.py"]),
    Defence("files of unknown length", "proxy.models.bound:_Walk._medium", nothing, ["test_prompt_bounds.py"]),
    Defence("values that stand twice, odd numbers", "proxy.models.bound:kept_value", lambda old: orjson.loads,
            ["test_prompt_bounds.py"]),
    Defence("media in members that nobody knows", "proxy.models.bound:holds_media", always(False),
            ["test_prompt_bounds.py"]),
    Defence("headers that bound a picture", "proxy.teams.estimates:tells_size", always(True),
            ["test_prompt_bounds.py"]),
    Defence("references of schemas", "proxy.models.bound:unfolded_bytes", always(0), ["test_prompt_bounds.py"]),
    Defence("tools that are two", "proxy.protocol.request.demand:_known_once", lambda old: lambda raw, members: members,
            ["../unit/protocol/request/test_demand.py"]),
    Defence("one estimate at a time", "proxy.teams.bookings:BudgetReservation.estimated",
            lambda old: property(lambda self: frozenset(), lambda self, value: None), ["test_prompt_bounds.py"]),
    Defence("what cannot be understood", "proxy.teams.estimates:_check_clear", nothing, ["test_money.py"]),
    Defence("what has no price", "proxy.teams.estimates:Estimates._check_priced", nothing, ["test_money.py"]),
    Defence("dearer tiers and tools", "proxy.protocol.request.demand:wants_of", lambda old: lambda *_: (PLAIN, ""),
            ["test_money.py"]),
    Defence("what came before a hang-up", "proxy.protocol.response.outcome:Received.tokens",
            lambda old: property(lambda self: 0), ["../unit/protocol/response/test_outcome_received.py"]),
    Defence("bills that wait", "proxy.engine.conclusion:is_deferred", always(False), ["test_objects.py"]),
    Defence("a bill once", "proxy.engine.custody:Custody.take_bill", _bill_stays, ["test_objects.py"]),
    Defence("reading is free", "proxy.protocol.account:operation_of",
            lambda old: lambda method, segments: replace(old(method, segments), bills=True), ["test_objects.py"]),
    # Objects
    Defence("whose an object is", "proxy.engine.custody:Custody._check", idle, ["test_objects.py"]),
    Defence("a path's object", "proxy.engine.custody:Custody.enter", idle, ["test_objects.py"]),
    Defence("a body's objects", "proxy.protocol.references:references", always([]), ["test_objects.py"]),
    Defence("escapes in the names of members", "proxy.protocol.references:_ANY_ESCAPE", never,
            ["test_objects.py"]),
    Defence("items of the input", "proxy.protocol.references:_item", always(()), ["test_objects.py"]),
    Defence("a query's objects", "proxy.engine.custody:_in_query", always([]), ["test_objects.py"]),
    Defence("a form's objects", "proxy.engine.custody:refers", always(False), ["test_objects.py"]),
    Defence("files of batches", "proxy.engine.custody:FileWatch.__call__", nothing, ["test_objects.py"]),
    Defence("what reaches the whole account", "proxy.protocol.account:operation_of", _unknown_asks,
            ["test_objects.py"]),
    Defence("where objects live", "proxy.engine.custody:pinned", same, ["test_objects.py"]),
    Defence("objects of one place", "proxy.engine.custody:place", always(()), ["test_objects.py"]),
    Defence("filtered lists", "proxy.engine.raw_requests:_own_rows", lambda old: lambda rows, records: list(rows),
            ["test_objects.py"]),
    # Configuration
    Defence("restrictions that are not honoured", "proxy.cli.check_config:unsupported", always(()),
            ["test_configuration.py"]),
    Defence("what restricts", "proxy.app.settings.unsupported:RESTRICTS", empty, ["test_configuration.py"]),
    Defence("what changes", "proxy.app.settings.unsupported:CHANGES", empty, ["test_configuration.py"]),
    Defence("callbacks that are not known", "proxy.app.settings.unsupported:_callbacks", always(()),
            ["test_configuration.py"]),
    Defence("a limit of 0", "proxy.app.settings.unsupported:_is_unset", lambda old: lambda value: not value,
            ["test_configuration.py"]),
    Defence("parameters on http", "proxy.app.settings.unsupported:unused_on_http", always(()),
            ["test_configuration.py"]),
    Defence("keys that have expired", "proxy.cli.check_config:expired_keys", always(()), ["test_configuration.py"]),
    Defence("an open proxy with keys", "proxy.cli.check_config:refuse_exposed", nothing, ["test_configuration.py"]),
    Defence("addresses of this machine", "proxy.teams.authentication:is_loopback", always(True),
            ["test_configuration.py"]),
    Defence("an open proxy after a reload", "proxy.cli.serve:_settings_at",
            lambda old: lambda arguments, address: settings_of(arguments), ["test_configuration.py"]),
    # Isolation
    Defence("a scope for each key", "proxy.teams.authentication:Identity._scope", always("everybody"),
            ["test_isolation.py"]),
    # Words
    Defence("keys in an upstream's errors", "proxy.kit.secrets:Redaction.body", lambda old: lambda self,
            body: body,
            ["test_keys.py"]),
    Defence("keys in models", "proxy.engine.headers:refuse_key_in_model", nothing, ["test_keys.py"]),
    Defence("keys in users", "proxy.engine.headers:without_keys_of", lambda old: lambda exchange, user: user,
            ["test_keys.py"]),
    Defence("keys in log lines", "proxy.engine.conclusion:shown", same, ["test_keys.py"]),
    # Time
    Defence("plugins that are too slow", "proxy.hookspecs:_MOST_SLOW", lambda old: 1_000_000,
            ["../unit/test_hookspecs.py"]),
    Defence("messages of bugs", "proxy.kit.tasks:suppress_and_log.__exit__", always(False),
            ["../unit/app/web/test_connection.py"]),
    Defence("cut and plain log lines", "proxy.protocol.wire.json_body:one_line", same,
            ["../unit/protocol/wire/test_json_body.py"]),
)  # fmt: skip


def remove(name: str) -> None:
    """Take a defence away in this process, wherever it was imported."""
    (defence,) = [one for one in DEFENCES if one.name == name]
    patching.replace(defence.where, defence.becomes)


def cases_of(defence: Defence) -> Sequence[Path]:
    """The files of its cases."""
    return [(_ROOT / _HERE / case.partition("::")[0]).resolve() for case in defence.cases]


def is_noticed(defence: Defence) -> tuple[bool, str]:
    """Whether one of its cases fails without it, and the last line of what pytest says."""
    cases = [str((_ROOT / _HERE / case).resolve().relative_to(_ROOT)) for case in defence.cases]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--without", defence.name, *cases]
    try:
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_TIME_S, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no end within {_TIME_S} s"
    last = done.stdout.strip().rpartition("\n")[2]
    return done.returncode == 1 and re.search(r"\b\d+ failed\b", last) is not None, last


def main() -> int:
    """Print what became of each removal; 1 where one was not noticed."""
    chosen = [one for one in DEFENCES if not sys.argv[1:] or one.name in sys.argv[1:]]
    missed = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for defence, (noticed, last) in zip(chosen, pool.map(is_noticed, chosen), strict=True):
            print(f"{'noticed' if noticed else 'NOT NOTICED':12} {defence.name}: {last}", flush=True)
            missed += not noticed
    print(f"{len(chosen)} defences were removed one by one; the removal of {missed} was not noticed.")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
