"""Puts the app together: everything that ``create_app`` needs, from settings."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from proxy.access.authentication import Identity
from proxy.admin import AdminService
from proxy.admin.litellm_forms import LitellmForms
from proxy.app import declared, factories, prompting
from proxy.app.foundation import Foundation, State, Worker, lay
from proxy.app.prompting import LazyRegistry
from proxy.app.reload import Reload
from proxy.clock import Readings
from proxy.core.request.tokens import Encode
from proxy.core.value import dataclass
from proxy.engine import Bounds, Breakers, Conclusion, Custody, Engine, Ports
from proxy.engine.inquiries import Inquiries
from proxy.engine.ports import Follower
from proxy.planning.compactions import Compactor
from proxy.planning.followers import Followers
from proxy.planning.keep_alive import KeepAlive
from proxy.planning.own_exchanges import OwnExchanges
from proxy.planning.session_book import SessionBook
from proxy.planning.token_usage import TokenUsage, UsageFollower
from proxy.planning.tokenizers import is_counted_by
from proxy.ports import Transport, Upstream
from proxy.prompting.composer import Composer
from proxy.settings import Settings
from proxy.spend.alerts import BudgetAlerts
from proxy.spend.condition import faults
from proxy.spend.estimates import Estimates
from proxy.spend.prompt_bounds import PromptBounds
from proxy.spend.reservations import BudgetReservations
from proxy.spend.rules import LimitResolver, rule_of
from proxy.spend.webhooks import WebhookSender
from proxy.telemetry.meter import Meter
from proxy.ui.endpoint import UiEndpoint
from proxy.ui.gate import Gate
from proxy.ui.live import Live
from proxy.upstream.embedded import EmbeddedUpstream
from proxy.upstream.http import HttpUpstream
from proxy.upstream.litellm_ import LitellmUpstream
from proxy.web.admin import AdminEndpoint
from proxy.web.app import Parts


@dataclass(frozen=True, slots=True)
class Assembly:
    """An app's parts, and its upstreams. ``reload`` takes over a changed configuration. ``live`` keeps open pages up to
    date (None: there are no pages). ``watch`` registers a function that is told what each exchange used."""

    parts: Parts
    upstreams: Mapping[Transport, Upstream]
    reload: Reload
    live: Live | None
    watch: Callable[[Callable[[Mapping[str, Any]], None]], None]


async def build(
    settings: Settings,
    *,
    upstreams: Mapping[Transport, Upstream] | None = None,
    readings: Readings | None = None,
    encode: Encode | None = None,
    obstacle: Callable[[], str] = str,
    worker: Worker | None = None,
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Assembly:
    """The parts of an app. Given ``upstreams`` replace those that the settings ask for, and ``readings`` replace the
    machine's clocks. ``wait`` sleeps for the given seconds of the clock. Raises ConfigError."""
    ours, base = settings.stratiform, await lay(settings, readings=readings, encode=encode, worker=worker)
    models, metrics, state, aside = base.models, base.metrics, base.state, base.aside
    identity = declared.identity(settings, state.directory, state.store)
    admission = await _open_budgets(settings, base, identity)
    breakers = Breakers(settings.routing.breaker, metrics.breaker)
    rules, prompts = prompting.rules_of(settings, models.spellings), LazyRegistry(settings, base.manager, metrics, wait)
    await prompts.open(settings, rules)
    used = {**make_upstreams(base.encode), **(upstreams or {})}
    composer, spans = Composer(rules, prompts.snapshot, metrics, aside), factories.spans_of(settings)
    meter = Meter(metrics, base.prices, spans.record if spans is not None else None)
    custody, book, asked = _custody(settings, base), _session_book(settings, base), _inquiries(settings, base)
    reports = TokenUsage(base.facts, aside, book.so_far if book is not None else None)
    ports = Ports(
        models, used, base.planner, admission, meter, state.clock, composer, base.windows(), reports.of, asked
    )
    follower = _followers(settings, base, ports, conclusion := Conclusion(ports, custody), wait, book)
    limits = factories.request_rules(settings, base.prices)
    engine = Engine(
        ports, limits, breakers=breakers, conclusion=conclusion, follower=follower, custody=custody, aside=aside
    )
    admin, ui = _admin(settings, state, identity, book)
    live = ui.live if ui is not None else None
    on_close = [prompts.aclose, admission.aclose, *base.closing, *([spans.aclose] if spans is not None else [])]
    parts = Parts(
        engine=engine,
        models=models,
        metrics=metrics,
        obstacle=obstacle,
        faults=partial(faults, admission.store_client, state.epochs, state.directory, ours.budgets.on_store_error),
        on_close=on_close,
        admin=admin,
        ui=ui,
        metrics_key=ours.metrics.secret,
        is_failing=breakers.is_failing,
        allowed_ips=settings.allowed_ips,
    )
    reload = Reload(models, base.prices, state.directory, composer, prompts)
    return Assembly(parts, used, reload, live, lambda show: follower.lead(UsageFollower(reports, show)))


def _inquiries(settings: Settings, base: Foundation) -> Inquiries | None:
    ours = settings.stratiform
    room = ours.limits.state_bytes // 8
    return Inquiries(base.facts.price, base.aside, room) if ours.ask_provider_for_cause else None


def _custody(settings: Settings, base: Foundation) -> Custody:
    objects, state = settings.stratiform.objects, base.state
    bounds = Bounds(objects.most_per_team, objects.retention_days * 86400.0)
    return Custody(state.store, base.models, state.clock, base.metrics.store_failed, bounds, base.aside)


def _session_book(settings: Settings, base: Foundation) -> SessionBook | None:
    """The stored data of live sessions; None if nobody may look at it."""
    if not factories.is_watched(settings):
        return None
    state, ours = base.state, settings.stratiform
    book = SessionBook(
        state.store,
        state.clock.now,
        base.metrics.store_failed,
        base.aside,
        base.facts,
        worker=base.planner.pure.prefix,
        memory_bytes=ours.limits.state_bytes,
    )
    book.keeps_texts = ours.ui.enabled and ours.ui.show_text
    return book


def _admin(
    settings: Settings, state: State, identity: Identity, book: SessionBook | None
) -> tuple[AdminEndpoint | None, UiEndpoint | None]:
    """The administration, None if there is no master key; and its pages, None if nobody may look at them."""
    service = AdminService(state.directory, state.store, state.clock, state.epochs, book)
    admin, ui, ours = None, None, settings.stratiform.ui
    if identity.has_master:
        admin = AdminEndpoint(service, identity, LitellmForms(service, state.directory))
    if ours.enabled and factories.is_watched(settings):
        gate = Gate(identity, state.clock.now, settings.stratiform.host, ours.hosts, ours.session_minutes * 60.0)
        ui = UiEndpoint(service, gate, shows_text=ours.show_text)
    return admin, ui


async def _open_budgets(settings: Settings, base: Foundation, identity: Identity) -> BudgetReservations:
    """The admission of requests, the budgets and the ledger. The remaining amounts of the teams' budgets are read
    before the first request."""
    ours, state, metrics = settings.stratiform, base.state, base.metrics
    clock, bounds = state.clock, PromptBounds(base.encode, base.aside, is_counted_by, ours.limits.state_bytes)
    webhook, store_client = ours.budgets.webhook, base.store_client(settings)
    secret = webhook.secret.get_secret_value() if webhook is not None and webhook.secret is not None else ""
    reservations = BudgetReservations(
        identity.admit,
        LimitResolver(state.directory, webhook.url.get_secret_value() if webhook is not None else ""),
        store_client,
        BudgetAlerts(store_client, metrics, WebhookSender(secret.encode(), clock, metrics)),
        Estimates(base.facts.price, bounds, allows_unknown=ours.budgets.on_unknown_price == "allow"),
        on_store_error=ours.budgets.on_store_error,
        epochs=state.epochs,
    )
    await reservations.start()
    for budget in state.directory.snapshot.budgets.values():
        if budget.scope == "team":
            await reservations.alerts.look(budget.team, [rule_of(budget, "")], state.clock.now())
    metrics.remaining = reservations.alerts.remaining
    return reservations


def _followers(
    settings: Settings,
    base: Foundation,
    ports: Ports,
    conclusion: Conclusion,
    wait: Callable[[float], Awaitable[None]],
    book: SessionBook | None,
) -> Followers:
    """The work that follows the exchanges of clients."""
    found: list[Follower] = [book] if book is not None else []
    ended = book.ended if book is not None else lambda exchange: None
    planner, metrics, price_of = base.planner, base.metrics, base.facts.price
    if (refreshes := factories.keep_alive_terms(settings)) is not None:
        own = OwnExchanges(ports, conclusion, price_of, refreshes)
        found.append(KeepAlive(refreshes, own, planner.pure, ports.clock, metrics.refreshed, wait, ended))
    terms, compactions = factories.compactor_terms(settings), planner.compactions
    if terms is not None and compactions is not None:
        own = OwnExchanges(ports, conclusion, price_of, terms)
        found.append(Compactor(compactions, own, ports.clock, metrics.compacted))
    return Followers(found)


def make_upstreams(encode: Encode) -> dict[Transport, Upstream]:
    """An upstream for each transport. None of them does anything before its first call."""
    return {
        Transport.HTTP: HttpUpstream(),
        Transport.LITELLM: LitellmUpstream(),
        Transport.EMBEDDED: EmbeddedUpstream(encode, tells=True),
    }
