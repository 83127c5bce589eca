"""The model table, which finds the deployments that serve a model name.

Exact names come first, then wildcards, the most specific pattern first. As in LiteLLM, the part that ``*`` matched in
``model_name`` replaces ``*`` in ``model``. Several deployments of one name are a group: sessions are distributed over
them by weight, and the deployments of a lower ``order`` come first. After the group come the fallbacks of its name.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from proxy.core.lru import LastUsed
from proxy.core.model_patterns import captured
from proxy.core.money.prices import Price
from proxy.core.providers import CacheProfile, Family, Routing, fitted
from proxy.core.value import dataclass, replace
from proxy.deployments.choice import choose_profile, provider_of, server_of
from proxy.errors import UnknownModel
from proxy.ports import Deployment, ModelTerms, Transport

PriceOf = Callable[[Deployment], Price | None]
Levels = tuple[tuple[Deployment, ...], ...]

_CACHED_NAMES = 1024
# No model has a longer name, and the time to match several stars grows with the name.
_MAX_NAME_CHARS = 256
_NUMBERED = re.compile(r"^.+#[0-9]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ListedModel(ModelTerms):
    """One entry of the model list. ``model`` is written as in LiteLLM: ``provider/name``. ``name`` and ``model`` may
    contain ``*``.

    ``transport`` and ``profile`` are None if the configuration does not set them. ``id`` is a further name, only for
    this entry. ``line`` is the number of the entry in the configuration; None if it has none.
    """

    name: str
    model: str
    provider: str = ""
    transport: Transport | None = None
    profile: CacheProfile | None = None
    order: int = 0
    id: str = ""
    line: int | None = None


def deployment_of(entry: ListedModel, price_of: PriceOf, name: str = "", model: str = "") -> Deployment:
    """The deployment that an entry describes. For a wildcard entry, ``name`` and ``model`` are those of the request."""
    written = model or entry.model
    provider, bare = provider_of(written, entry.provider)
    transport = entry.transport or _default_transport(provider, entry.base_url)
    profile = entry.profile or choose_profile(transport, provider, bare, _host(entry.base_url))
    server = server_of(transport, provider, _host(entry.base_url))
    if entry.session_header:
        profile = replace(profile, routing=Routing("header", entry.session_header.lower(), servers=(server,)))
    deployment = Deployment(
        name=name or entry.name,
        model=written if transport is Transport.LITELLM else bare,
        transport=transport,
        profile=profile,
        base_url=entry.base_url,
        server=server,
        api_key=entry.api_key,
        headers=entry.headers,
        params=entry.params,
        price_key=entry.price_key or written,
        mode=entry.mode,
        reminder=entry.reminder,
        timeout_s=entry.timeout_s,
        entry=entry.name,
        id=name or entry.name,
        weight=entry.weight,
        max_input_tokens=entry.max_input_tokens,
        session_header=entry.session_header,
        salts_cache=entry.salts_cache,
        groups=entry.groups,
        rates=entry.rates,
    )
    return replace(deployment, profile=_fitted(deployment.profile, bare, price_of(deployment)))


def _fitted(profile: CacheProfile, model: str, price: Price | None) -> CacheProfile:
    """The profile with the particulars of the model. The price map's price of a read wins."""
    if profile.family is Family.NONE:
        return profile
    profile = fitted(profile, model)
    read = price.read / price.input if price and price.input and profile.listed_read else None
    # For an unknown read price, the price map holds the input price; that says nothing about the provider.
    return replace(profile, read=read) if read is not None and 0 < read < 1 else profile


def _default_transport(provider: str, base_url: str) -> Transport:
    """``http`` if the server is given and uses OpenAI's protocol. For all others, litellm translates."""
    if provider == Transport.EMBEDDED:
        return Transport.EMBEDDED
    return Transport.HTTP if provider == "openai" and base_url else Transport.LITELLM


def _host(base_url: str) -> str:
    return (urlsplit(base_url).hostname or "") if base_url else ""


class ModelTable:
    """Finds the deployments of a model name among the entries of a configuration. ``aliases`` are further names for
    names in it. ``fallbacks`` are the names that serve a name when all of its own deployments fail (``*``: any name).
    ``wider`` are the names that serve it when its context windows are too small. ``default`` is the name whose
    deployment serves paths that name no model. ``hidden`` are names that are served but not listed."""

    def __init__(
        self,
        entries: Iterable[ListedModel],
        price_of: PriceOf,
        aliases: Mapping[str, str] | None = None,
        fallbacks: Mapping[str, Sequence[str]] | None = None,
        default: str = "",
        wider: Mapping[str, Sequence[str]] | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        self._price_of = price_of
        self._hidden = frozenset(hidden)
        self._aliases = dict(aliases or {})
        self._fallbacks = dict(fallbacks or {})
        self._default = default
        self._wider = dict(wider or {})
        named: dict[str, list[ListedModel]] = {}
        self._patterns: dict[str, list[ListedModel]] = {}
        for entry in entries:
            (self._patterns if "*" in entry.name else named).setdefault(entry.name, []).append(entry)
        self._exact = {
            name: _group(group, [deployment_of(entry, price_of) for entry in group]) for name, group in named.items()
        }
        self._by_id = _by_id(named.values(), self._exact)
        # Longer patterns come first. Of equally long patterns, the pattern with fewer stars comes first.
        self._wildcards = sorted(self._patterns.items(), key=lambda item: (-len(item[0]), item[0].count("*")))
        # Clients choose the names that match a wildcard, so only a bounded number of them is remembered.
        self._matched: LastUsed[str, Levels] = LastUsed(_CACHED_NAMES)

    def replace(self, table: "ModelTable") -> None:
        """From now on, serve the models of another table. A running request keeps the deployments that it was given."""
        vars(self).update(vars(table))

    def resolve(self, name: str) -> Deployment:
        """The first deployment for that name. Raises UnknownModel."""
        return self._own(name)[0][0]

    def candidates(self, name: str) -> Sequence[Deployment]:
        """Every deployment for that name, without its fallbacks. Raises UnknownModel."""
        return [deployment for level in self._own(name) for deployment in level]

    def levels(self, name: str) -> Levels:
        """Every deployment for that name, the deployments of equal order together, then those of its fallbacks. Raises
        UnknownModel."""
        own = self._own(name)
        if not self._fallbacks:
            return own
        target = self._aliases.get(name, name)
        others = self._stand_ins(self._fallbacks, name)
        return (*own, *(level for other in others if other not in (name, target) for level in self._own(other)))

    def wider(self, name: str) -> Levels:
        """The deployments that serve that name if the context windows of its own deployments are too small: those of
        the names that the configuration gives for it, then those of the names that it gives for these in turn. Raises
        UnknownModel."""
        if not self._wider:
            return ()
        found: list[tuple[Deployment, ...]] = []
        names, seen = [name], {name, self._aliases.get(name, name)}
        for one in names:
            for other in self._stand_ins(self._wider, one):
                target = self._aliases.get(other, other)
                if other not in seen and target not in seen:
                    seen |= {other, target}
                    names.append(other)
                    found += self._own(other)
        return tuple(found)

    def _stand_ins(self, named: Mapping[str, Sequence[str]], name: str) -> Sequence[str]:
        return named.get(name) or named.get(self._aliases.get(name, name)) or named.get("*", ())

    def _own(self, name: str) -> Levels:
        target = self._aliases.get(name, name)
        found = self._exact.get(target) or self._by_id.get(target) or self._matched.find(target) or self._match(target)
        if not found:
            shown = name[:_MAX_NAME_CHARS]
            raise UnknownModel(
                f"The model '{shown}' is not in this proxy's model list; GET /v1/models shows it.", param="model"
            )
        return found

    def spellings(self, name: str) -> Sequence[str]:
        """Every name by which clients and the configuration may mean the deployments of ``name``: the entry's name, the
        name with its provider and without it, the target of an alias, and last the name itself."""
        target = self._aliases.get(name, name)
        provider, bare = provider_of(target)
        served = self._served(target)
        further = (f"{provider}/{bare}" if provider else bare, bare, target)
        same = [one for one in further if one == target or (served and self._served(one) == served)]
        general = dict.fromkeys([*(line for line, _ in served), *same])
        return [*(one for one in general if one != name), name]

    def _served(self, name: str) -> list[tuple[str, str]]:
        try:
            return [(one.entry, one.model) for one in self.candidates(name)]
        except UnknownModel:
            return []

    def listed(self) -> Iterator[tuple[str, Deployment]]:
        """Every name that is listed one by one, with each of its deployments."""
        return ((name, deployment) for name in self.names() for deployment in self.candidates(name))

    def _every(self) -> list[Deployment]:
        behind = [deployment_of(entry, self._price_of) for entry in self.wildcards()]
        return [*(deployment for _, deployment in self.listed()), *behind]

    def names(self) -> Sequence[str]:
        """The names that are listed one by one, aliases last; no wildcards."""
        return [name for name in dict.fromkeys([*self._exact, *self._aliases]) if name not in self._hidden]

    def wildcards(self) -> Sequence[ListedModel]:
        """The entries whose name has a star."""
        return [entry for entries in self._patterns.values() for entry in entries]

    def patterns(self) -> Sequence[str]:
        """The names with a star, in the order of the configuration."""
        return list(self._patterns)

    def transports(self) -> frozenset[Transport]:
        """The transports that the deployments use."""
        return frozenset(deployment.transport for deployment in self._every())

    def sole(self) -> Deployment | None:
        """The only upstream, if it is on the http transport and gets all names unchanged; None if there are others."""
        entries = self.wildcards()
        if self._exact or self._aliases or self._fallbacks or [entry.name for entry in entries] != ["*"]:
            return None
        only = deployment_of(entries[0], self._price_of)
        return only if only.transport is Transport.HTTP and only.model == "*" else None

    def known(self, deployment_id: str) -> Deployment | None:
        """The deployment of that id; the first of its group if it is gone; None if the group is also gone."""
        name = deployment_id.rpartition("#")[0] if _NUMBERED.fullmatch(deployment_id) else deployment_id
        for asked in (deployment_id, name):
            try:
                found = self.candidates(asked)
            except UnknownModel:
                continue
            return next((one for one in found if one.id == deployment_id), found[0])
        return None

    def unnamed(self) -> Sequence[Deployment]:
        """The deployments that may serve paths that name no model, one for each upstream: the default's deployment, or
        else those of the entry for every name, or else all. litellm has no such paths. Raises UnknownModel."""
        if self._default:
            return (self.resolve(self._default),)
        of_any_name = [deployment_of(entry, self._price_of) for entry in self._patterns.get("*", ())]
        for transport in (Transport.HTTP, Transport.EMBEDDED):
            for group in (of_any_name, self._every()):
                found: dict[tuple[object, ...], Deployment] = {}
                for one in group:
                    if one.transport is transport:
                        found.setdefault((one.base_url, one.api_key, tuple(one.headers)), one)
                if found:
                    return tuple(found.values())
        raise UnknownModel("This path names no model, and the proxy has no upstream that it could be passed on to.")

    def _match(self, name: str) -> Levels:
        """Find a wildcard that matches a form of the name."""
        for written in forms(name):
            for pattern, entries in self._wildcards:
                if (parts := captured(pattern, written)) is not None:
                    found = [
                        deployment_of(entry, self._price_of, name, _substituted(entry.model, written, parts))
                        for entry in entries
                    ]
                    levels = _group(entries, found)
                    self._matched.put(name, levels)
                    return levels
        return ()


def forms(name: str) -> Sequence[str]:
    """The forms of a name that a wildcard may match: the name itself, or the name with its provider's prefix. So
    ``gpt-5`` is found under ``openai/*``."""
    if len(name) > _MAX_NAME_CHARS:
        return ()
    provider, _ = provider_of(name)
    return (name, f"{provider}/{name}") if provider and "/" not in name else (name,)


def _group(entries: Sequence[ListedModel], deployments: Sequence[Deployment]) -> Levels:
    """The deployments of one name by their order, numbered if there are several."""
    levels: dict[int, list[Deployment]] = {}
    for number, (entry, deployment) in enumerate(zip(entries, deployments, strict=True), start=1):
        id_ = _numbered(deployment.name, number, len(entries))
        # All names that match a wildcard share its limits, because clients choose the names.
        rates = deployment.rates and replace(deployment.rates, holder=_numbered(entry.name, number, len(entries)))
        levels.setdefault(entry.order, []).append(replace(deployment, id=id_, rates=rates))
    return tuple(tuple(levels[order]) for order in sorted(levels))


def _by_id(groups: Iterable[Sequence[ListedModel]], exact: Mapping[str, Levels]) -> dict[str, Levels]:
    """By id: each deployment whose entry has an id, alone. It keeps its number in its group, and so its circuit
    breaker."""
    found: dict[str, Levels] = {}
    for group in groups:
        deployments = {one.id: one for level in exact[group[0].name] for one in level}
        for number, entry in enumerate(group, start=1):
            if entry.id:
                one = deployments[_numbered(entry.name, number, len(group))]
                found[entry.id] = (*found.get(entry.id, ()), (one,))
    return found


def _numbered(name: str, number: int, size: int) -> str:
    return f"{name}#{number}" if size > 1 else name


def _substituted(model: str, name: str, parts: Sequence[str]) -> str:
    """``model`` with its stars replaced in turn. If it has fewer stars than there are matched parts, the whole name is
    passed on."""
    if "*" not in model:
        return model
    if len(parts) > model.count("*"):
        return name
    for part in parts:
        model = model.replace("*", part, 1)
    return model
