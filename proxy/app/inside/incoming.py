"""Reads LiteLLM's arguments of one call: its sender, its session, its body, and its deployment. Makes a plan the
arguments with which the call is sent: a new mapping with the plan's changes. All other values are the caller's objects.

LiteLLM writes the sender of a request into ``metadata``. On some paths it writes the sender into ``litellm_metadata``
instead, and ``metadata`` is the client's own. So only one of the two is LiteLLM's. A scope is therefore made of both: a
client that writes another sender's identity into its own half gets a scope that nobody else has.

``Host`` reads data of the LiteLLM in which the callback runs (its configuration file, its response cache, its
providers), and ``export`` adds the callback's metrics to LiteLLM's.

The module ``litellm`` comes from the entry (``plugins/litellm_hook.py``); only the entry imports it.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from operator import is_
from pathlib import Path
from typing import Any, Literal

import orjson
from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from proxy.app.factories import listed_model, price_source
from proxy.app.settings import ModelEntry, Settings
from proxy.engine.chat import MODE_HEADER
from proxy.engine.exchange import Principal
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.lru import LastUsed
from proxy.kit.modes import Mode
from proxy.kit.value import dataclass
from proxy.models import Deployment, Headers, Transport
from proxy.models.deployments import deployment_of
from proxy.protocol.prices import PriceMap
from proxy.protocol.providers import CacheProfile
from proxy.protocol.request import BodyChanges
from proxy.teams.authentication import DEFAULT_TEAM, session_hint
from proxy.upstream.litellm_library import CHAT_FIELDS, Library, LitellmRoute, mapping

_MOST_DEPLOYMENTS = 1024
_PARAMS = ("model", "api_base", "base_url", "custom_llm_provider")
_HOLDERS = ("metadata", "litellm_metadata")
_KEY = "user_api_key_hash"
_MOST_CHARS = 256
_LONG_MARK = b'"ttl":"1h"'  # as ``body_of`` writes it; inside of a text, its quotes would be escaped
# Values that orjson would write in its own form, so that a reader would not get them back unchanged.
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


StandDownReason = Literal[
    "settings", "starting", "another-loop", "share-of-time", "unreadable", "nested", "injection-points",
    "semantic-cache", "internal-error",
]  # fmt: skip
"""Why an attempt is sent as it came although it might have been planned. The package's README explains each reason."""

StandDown = Callable[[StandDownReason], None]


class StoodDown(Exception):
    """The request is sent as it came."""

    def __init__(self, reason: StandDownReason) -> None:
        super().__init__(reason)
        self.reason: StandDownReason = reason


def principal_of(arguments: Mapping[str, Any]) -> Principal:
    """The sender of the request, by LiteLLM's identities: team, key and user. LiteLLM tells only the hash of a key."""
    told = [mapping(arguments.get(holder)) for holder in _HOLDERS]
    whole = [_text(one, name) for one in told for name in ("user_api_key_team_id", _KEY)]
    scope = hashlib.blake2b("\0".join(["litellm", *whole]).encode("utf-8", "replace"), digest_size=16).hexdigest()
    mine = _sender(arguments)
    return Principal(
        scope=scope,
        team=_text(mine, "user_api_key_team_alias", "user_api_key_team_id") or DEFAULT_TEAM,
        session_hint=session_hint(headers_of(arguments)),
        virtual=True,
        key_id=_text(mine, _KEY),
        user=_text(mine, "user_api_key_user_id", "user_api_key_end_user_id"),
    )


def call_of(arguments: Mapping[str, Any]) -> str:
    """Identifies a call, by the key of its sender and by its id. Clients may choose the id, and so name a call of
    somebody else."""
    return f"{_text(_sender(arguments), _KEY)}\0{str(arguments.get('litellm_call_id'))[:_MOST_CHARS]}"


def _sender(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The half that LiteLLM wrote about the sender."""
    ours, beside = (mapping(arguments.get(holder)) for holder in _HOLDERS)
    return ours if _KEY in ours else beside


def headers_of(arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """The client's headers, by their names in lower case."""
    found = mapping(mapping(arguments.get("proxy_server_request")).get("headers"))
    return {name.lower(): value for name, value in found.items() if isinstance(name, str) and isinstance(value, str)}


def mode_of(arguments: Mapping[str, Any], allowed: Mode) -> Mode:
    """The mode of the request: its header may lower the allowed mode. A header that names no mode changes nothing."""
    asked = headers_of(arguments).get(MODE_HEADER)
    try:
        return min(allowed, Mode.parse(asked)) if asked else allowed
    except ValueError:
        return allowed


def body_of(arguments: Mapping[str, Any], profile: CacheProfile) -> bytes:
    """The request as OpenAI's JSON, as far as layouts depend on it. Raises StoodDown if a value has no such form."""
    breaking = profile.breaking
    breaks = {*breaking.before_tools, *breaking.before_system, *breaking.before_messages}
    names = CHAT_FIELDS | breaks | {"model", "cache_control"}
    try:
        # A value of None is left out, because LiteLLM does not send it.
        return orjson.dumps({n: v for n, v in arguments.items() if n in names and v is not None}, option=_STRICT)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoodDown("unreadable") from error


def with_room(deployment: Deployment, arguments: Mapping[str, Any], body: bytes) -> Deployment:
    """The deployment without the slots that LiteLLM's injection points may take. All markers have the shorter life
    then, wherever LiteLLM adds its own. Raises StoodDown if no slot is left, or a marker has the longer life."""
    if not (injected := injected_marks(arguments)):
        return deployment
    left = deployment.profile.max_marks - injected
    if left < 1 or _LONG_MARK in body:
        raise StoodDown("injection-points")
    return replace(deployment, profile=replace(deployment.profile, max_marks=left, long_life_s=0.0))


class Deployments:
    """Finds deployments by LiteLLM's arguments. ``told`` is called with a text about an entry that is not
    understood."""

    def __init__(self, settings: Settings, prices: PriceMap, told: Callable[[str], None]) -> None:
        self._settings = settings
        self._price_of = price_source(prices)
        self._told = told
        self._known: LastUsed[tuple[str, ...], tuple[Mapping[str, Any], Deployment | None]] = LastUsed(
            _MOST_DEPLOYMENTS
        )

    def find(self, arguments: Mapping[str, Any]) -> Deployment | None:
        """The deployment that is called; None if ``model_info.stratiform: false`` switches planning off for it, or if
        its entry is not understood. An entry may be changed while LiteLLM runs."""
        info, metadata = mapping(arguments.get("model_info")), mapping(arguments.get("metadata"))
        group = metadata.get("model_group") or mapping(arguments.get("litellm_metadata")).get("model_group")
        # The prices of an entry are among LiteLLM's arguments; a price of 0 is one.
        params = {n: v for n, v in arguments.items() if v is not None and ((n in _PARAMS and v) or "_cost" in n)}
        shown = [str(params.get(name, "")) for name in _PARAMS]
        model_id, name = str(info.get("id") or ""), str(group or shown[0])
        entry = {"model_name": name, "litellm_params": params, "model_info": dict(info)}
        known = self._known.find(key := (model_id, name, *shown))
        if known is None or known[0] != entry:
            self._known.put(key, known := (entry, self._made(model_id, entry)))
        return known[1]

    def _made(self, model_id: str, written: Mapping[str, Any]) -> Deployment | None:
        name, switch = written["model_name"], written["model_info"].get("stratiform")
        if switch is False:
            return None
        try:
            entry = ModelEntry.model_validate(written)
            problems: list[str] = []
            listed = listed_model(entry, "model_info", self._settings, problems)
            mode = min(listed.mode, Mode.parse(switch)) if isinstance(switch, str) else listed.mode
        except ValueError as error:
            self._told(f"model_info of {name}: {type(error).__name__}; its requests go as they came")
            return None
        if listed.salts_cache:
            problems.append(f"model_info of {name}: cache_salt is without effect here; its teams share a cache")
        for problem in problems:
            self._told(problem)
        found = deployment_of(replace(listed, transport=Transport.LITELLM, mode=mode), self._price_of)
        return replace(found, id=model_id or found.id)


def injected_marks(arguments: Mapping[str, Any]) -> int:
    """How many markers LiteLLM's injection points of the deployment will add, at most. Raises StoodDown if they ask for
    the longer life: a provider refuses a marker for the longer life that follows one for the shorter life."""
    points, messages = arguments.get("cache_control_injection_points"), arguments.get("messages")
    if not isinstance(points, list) or not isinstance(messages, list):
        return 0
    told = [mapping(point) for point in points]
    if any(mapping(point.get("control")).get("ttl") == "1h" for point in told):
        raise StoodDown("injection-points")
    roles = [mapping(message).get("role") for message in messages]
    # A point names one message by its index, or all messages of a role.
    of_roles = [point["role"] for point in told if point.get("index") is None and point.get("role") is not None]
    return len(told) - len(of_roles) + sum(map(roles.count, of_roles))


def _text(told: Mapping[str, Any], *names: str) -> str:
    """The first of these values that is a text and not empty."""
    return next((value[:_MOST_CHARS] for name in names if isinstance(value := told.get(name), str) and value), "")


# LiteLLM translates the model's name, and asks for the usage of a stream where its provider and operator let it.
_LITELLMS_OWN = frozenset({"model", "stream_options"})
_PLAIN = frozenset({str, int, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The arguments that a plan has ``changed``; ``dropped`` are those that it leaves out."""

    changed: Mapping[str, Any]
    dropped: frozenset[str] = frozenset()

    def applied(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The caller's arguments with this change, as a new mapping."""
        return {**{n: v for n, v in arguments.items() if n not in self.dropped}, **self.changed}

    def undone(self, arguments: Mapping[str, Any], came: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments without this change, after it was applied. ``came`` are the arguments before the change."""
        touched = self.changed.keys() | self.dropped
        return {
            **{n: v for n, v in arguments.items() if n not in touched},
            **{n: came[n] for n in touched if n in came},
        }


def rewriting(
    arguments: Mapping[str, Any], changes: BodyChanges, headers: Headers, route: Callable[[], LitellmRoute]
) -> Rewriting | None:
    """The change with which LiteLLM sends the plan in place of the request; None if the plan changes nothing.
    ``headers`` are sent with the change. A field that LiteLLM would refuse for the provider goes into ``extra_body``;
    if the provider has no ``extra_body``, the field is left out. Raises StoodDown if a value of the caller differs from
    its JSON (such as a number that is not finite, or a member's name that is no text): then nothing is changed."""
    before, given = changes.parsed.members, arguments["messages"]
    new = {name: raw for name, raw in changes.members.items() if raw is not None and name not in _LITELLMS_OWN}
    changed = {name: orjson.loads(raw) for name, raw in new.items() if name not in before or raw != bytes(before[name])}
    dropped = frozenset(name for name, raw in changes.members.items() if raw is None and name in before)
    messages = _messages(given, changes)
    if messages is not given:
        changed["messages"] = messages
    if not (changed or dropped or headers):
        return None
    for name in changed.keys() & before.keys() - {"messages"}:
        _check_plain(arguments[name])
    added = changed.keys() - before.keys()
    found = route() if added else None
    beside = {name: changed.pop(name) for name in added if found is not None and name not in found.fields}
    if beside and found is not None and found.extra_body:
        # The caller's own values win.
        changed["extra_body"] = {**beside, **mapping(arguments.get("extra_body"))}
    if headers:
        changed["extra_headers"] = {**dict(headers), **mapping(arguments.get("extra_headers"))}
    return Rewriting(changed, dropped)


def _messages(given: Sequence[Any], changes: BodyChanges) -> Sequence[Any]:
    """The messages that are sent; ``given`` itself if these are all messages in their order. Messages that are sent as
    they came are the caller's own objects."""
    if changes.messages is None:
        new = {i: orjson.loads(raw) for i, raw in changes.changed.items() if raw is not changes.came[i].raw}
        for index in new:
            _check_plain(given[index])
        return [new.get(index, message) for index, message in enumerate(given)] if new else given
    own = {id(message.raw): one for message, one in zip(changes.came, given, strict=True)}
    sent = changes.messages
    for left_out in own.keys() - set(map(id, sent)):
        _check_plain(own[left_out])
    found = [own[id(raw)] if id(raw) in own else orjson.loads(raw) for raw in sent]
    return given if len(found) == len(given) and all(map(is_, found, given)) else found


def _check_plain(given: object) -> None:
    """Raises StoodDown if JSON does not give a value back unchanged. JSON was already written from the value, so it is
    not nested without end, and the names of its members are texts."""
    if isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            _check_plain(each)
    elif type(given) not in _PLAIN and not (isinstance(given, float) and isfinite(given)):
        raise StoodDown("unreadable")


_PREFIX = "stratiform_"


class Host:
    """One LiteLLM. ``litellm`` is its module."""

    def __init__(self, litellm: Any) -> None:
        self._litellm = litellm
        self.route = Library(litellm).route

    def settings_path(self) -> Path | None:
        """The configuration file with which LiteLLM's proxy was started; None if it was started without one, or is used
        as a library."""
        path = getattr(sys.modules.get("litellm.proxy.proxy_server"), "user_config_file_path", None)
        return Path(path) if isinstance(path, str) and path else None

    def cache_key(self, arguments: Mapping[str, Any]) -> str | None:
        """The response cache's key of a request as it came; None if that cache is not used for the request.

        LiteLLM looks up an answer after the callback. Without a given key, it would compute the key from the layout,
        and equal requests would be found only while their layouts are equal. Raises StoodDown if that cache compares
        texts by their meaning, because a layout is another text.
        """
        cache, control = self._litellm.cache, arguments.get("cache")
        is_asked = cache is not None and arguments.get("caching") is not False
        if not is_asked or (isinstance(control, Mapping) and control.get("no-cache") is True):
            return None
        if "semantic" in str(getattr(cache, "type", "")):
            raise StoodDown("semantic-cache")
        given = arguments.get("cache_key")
        return given if isinstance(given, str) and given else str(cache.get_cache_key(**arguments))


class _Collector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """All of our metrics; LiteLLM serves the metrics of the process itself."""
        return (family for family in self._metrics.registry.collect() if family.name.startswith(_PREFIX))

    def describe(self) -> Iterable[Metric]:
        """Nothing: no names are claimed, so that a second callback in the same process causes no conflict."""
        return ()


def export(metrics: Metrics) -> None:
    """Have the metrics served together with LiteLLM's own, by the default registry of prometheus_client.

    With ``PROMETHEUS_MULTIPROC_DIR``, every metric of a process, including ours, is in the files of that folder, and
    LiteLLM reads the folder (https://prometheus.github.io/client_python/multiprocess/).
    """
    REGISTRY.register(_Collector(metrics))
