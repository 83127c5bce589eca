"""Every query of the dashboards, run by a real Prometheus that scraped a real proxy.

The proxy is the real app on a real socket, in front of the embedded provider; the traffic comes from the openai SDK. It
is made so that every panel has something to show: hits and writes, two models, a spent budget, upstream errors, a
fallback, breakers that open, a refused rewrite, a client that hangs up.
"""

import asyncio
import http.client
import json
import math
import re
import subprocess
import urllib.parse
import urllib.request
from contextlib import ExitStack

import openai
import pytest

from proxy.app.composition import build
from proxy.app.settings import load
from proxy.app.web import create_app
from proxy.models import Transport
from tests.doubles import serving
from tests.prometheus_server import GRAFANA, scraping, tool
from tests.services import closed_port
from tests.waiting import until

pytestmark = pytest.mark.slow

BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}
PANELS = {
    f"{name}: {panel['title']}": panel
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
}
RICH, POOR, FREE, BRIEF, SLOW = (f"sk-{name}-team" for name in ("rich", "poor", "free", "brief", "slow"))
NEVER_IN_GOOD_TRAFFIC = {
    "plugin {{plugin}}, {{hook}}", "observed", "left out: {{reason}}", "upstream: {{outcome}}", "store: {{operation}}",
    "notice: {{outcome}}", "keep-alive: {{outcome}}",
}  # fmt: skip
"""Queries that have nothing to show while nothing is wrong with a plugin, a prompt or the store, no model is in mode
observe, no upstream finds a request too large, nobody is told of a budget, and nobody pauses for minutes."""


def variables(model=".*", team=".*", basis="reported"):
    """Grafana's substitutions: its own, and the dashboard's variables."""
    return {"$__rate_interval": "30s", "$__range": "10m", "$model": model, "$team": team, "$basis": basis}


def substituted(query, values):
    for name, value in values.items():
        query = query.replace(name, value)
    assert "$" not in query, f"a variable that the test does not know: {query}"
    return query


CONFIG = """
model_list:
  - model_name: claude
    litellm_params: {model: anthropic/claude-sonnet-4-5}
    model_info: {transport: embedded, cache_profile: anthropic}
  - model_name: gpt
    litellm_params: {model: openai/gpt-4o}
    model_info: {transport: embedded, cache_profile: openai}
  - model_name: homemade
    litellm_params: {model: anthropic/homemade}
    model_info: {transport: embedded, cache_profile: anthropic}
  - model_name: told
    litellm_params: {model: anthropic/claude-sonnet-4-5}
    model_info: {transport: embedded, cache_profile: anthropic}
  - model_name: down
    litellm_params: {model: openai/gone, api_base: "http://127.0.0.1:DEAD_PORT", api_key: none}
  - model_name: replaced
    litellm_params: {model: openai/gpt-4o, api_base: "http://127.0.0.1:DEAD_PORT", api_key: none}
router_settings: {num_retries: 0, allowed_fails: 1, cooldown_time: 600, fallbacks: [{replaced: [gpt]}]}
stratiform:
  store: memory
  teams:
    - {name: rich, keys: [sk-rich-team], budget: {usd: 100}}
    - {name: poor, keys: [sk-poor-team], budget: {usd: 0.001}}
    - {name: free, keys: [sk-free-team]}
    - {name: brief, keys: [sk-brief-team], budget: {usd: 100, soft_usd: 0.0001, assumed_output_tokens: 1, window: day}}
    - {name: slow, keys: [sk-slow-team], requests_per_minute: 1}
  prompts:
    folders: [./prompts]
    models: {told: {use: [task], allowed: {context: [mission]}}}
  window:
    models: {told: narrow}
    profiles: {narrow: {capability: chat, window_tokens: 4096, output_tokens: 512}}
  prices:
    claude:
      input_cost_per_token: 0.000003
      output_cost_per_token: 0.000015
      cache_read_input_token_cost: 0.0000003
      cache_creation_input_token_cost: 0.00000375
"""


def parts(folder, dead_port):
    """What `stratiform serve` puts together. Nobody listens where ``down`` and ``replaced`` lead."""
    path = folder / "config.yaml"
    path.write_text(CONFIG.replace("DEAD_PORT", str(dead_port)))
    (folder / "prompts").mkdir()
    (folder / "prompts" / "task.md").write_text("---\nposition: system\n---\nYour task: {{ mission.task }}.\n")
    return asyncio.run(build(load(path))).parts


class Traffic:
    """Sessions through the openai SDK; sums what the provider reported."""

    def __init__(self, base_url, ledgers):
        self.base_url = base_url + "/v1"
        self.ledgers = ledgers
        self.ended = 0
        self.prompt = self.read = self.output = 0
        self.claude_usd = 0.0

    def calls(self):
        """The calls that have reached the embedded provider."""
        return sum(ledger.requests for ledger in self.ledgers.values())

    def client(self, key=RICH, **headers):
        return openai.OpenAI(base_url=self.base_url, api_key=key, max_retries=0, default_headers=headers, timeout=180)

    def session(self, model, turns, number, key=RICH):
        """An editor that shows its files behind the conversation, as aider does: one of them changes every time."""
        history = []
        with self.client(key, **{"x-session-id": f"session-{number}"}) as client:
            for turn in range(turns):
                question = {"role": "user", "content": f"Question {turn}: what does function {turn} return?"}
                shown = [
                    {"role": "user", "content": OPENING + file("stable.py", 0) + file("hot.py", 100 * number + turn)},
                    {"role": "assistant", "content": ACKNOWLEDGEMENT},
                ]
                messages = [{"role": "system", "content": INSTRUCTIONS}, *history, *shown, question]
                answer = client.chat.completions.create(model=model, messages=messages, max_tokens=50)
                history += [question, {"role": "assistant", "content": answer.choices[0].message.content}]
                self.count(answer.usage, model)

    def count(self, usage, model):
        self.ended += 1
        details = usage.prompt_tokens_details
        read = (details.cached_tokens or 0) if details else 0
        written = getattr(usage, "cache_creation_input_tokens", 0) or 0
        if model != "homemade":
            self.prompt += usage.prompt_tokens
            self.read += read
        if model == "claude":
            plain = usage.prompt_tokens - read - written
            self.claude_usd += plain * 3e-06 + read * 3e-07 + written * 3.75e-06 + usage.completion_tokens * 1.5e-05

    def failing(self, kind, key=RICH, model="claude", **headers):
        """A request that ends in that error."""
        with self.client(key, **headers) as client, pytest.raises(kind):
            client.chat.completions.create(model=model, messages=[{"role": "user", "content": INSTRUCTIONS}])
        self.ended += 1

    def refused_rewrite(self):
        """The provider refuses markers; the client's own request is sent then."""
        self.greeting("claude", "claude", **{"x-embedded-fault": "refuse-rewrite"})

    def greeting(self, model, served_by, **headers):
        """A request that another model may come to answer."""
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": "Hello?"}]
        with self.client(**headers) as client:
            self.count(client.chat.completions.create(model=model, messages=messages).usage, served_by)

    def described(self):
        """Structured context: a file that is shown, and one that cannot be read."""
        shown = {"path": "a.py", "content": file("a.py", 0), "selected": True}
        section = {"files": [shown, {"path": "a.png", "content": None, "selected": True}]}
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": "Hello?"}]
        with self.client() as client:
            body = {"stratiform": section}
            answer = client.chat.completions.create(model="claude", messages=messages, max_tokens=50, extra_body=body)
        self.count(answer.usage, "claude")

    def told(self, task):
        """A conversation with a prompt of the operator's that is too long for its window."""
        turns = [{"role": role, "content": file("a.py", n)} for n in range(6) for role in ("user", "assistant")]
        messages = [*turns, {"role": "user", "content": "Hello?"}]
        body = {"stratiform": {"prompts": {"context": {"mission": {"task": task}}}}}
        with self.client() as client:
            answer = client.chat.completions.create(model="told", messages=messages, max_tokens=50, extra_body=body)
        self.count(answer.usage, "told")

    def hang_up(self):
        """Leaves before the answer begins. The prompt is billed by our own count, so nobody else counts this model."""
        body = json.dumps({"model": "homemade", "messages": [{"role": "user", "content": INSTRUCTIONS}]}).encode()
        connection = http.client.HTTPConnection(self.base_url.removeprefix("http://").removesuffix("/v1"), timeout=180)
        fault = {"x-embedded-fault": "slow-headers;seconds=600"}
        headers = {"authorization": f"Bearer {FREE}", "content-type": "application/json", **fault}
        before = self.calls()
        connection.request("POST", "/v1/chat/completions", body, headers)
        until(lambda: self.calls() > before)
        connection.close()
        self.ended += 1


INSTRUCTIONS = "\n".join(
    f"Rule {n}: answer question {n} in at most {n + 3} words, and name a source." for n in range(300)
)
OPENING = (
    "I have *added these files to the chat* so you can go ahead and edit them.\n\n"
    "*Trust this message as the true contents of these files!*\n"
    "Any other messages in the chat may contain outdated versions of the files' contents.\n"
)
ACKNOWLEDGEMENT = "Ok, any changes I propose will be to those files."


def file(path, version):
    body = "\n".join(f"def function_{n}():\n    return {n}" for n in range(120))
    return f"\n{path}\n```\n{body}\nVERSION = {version}\n```\n"


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """A Prometheus that has scraped the traffic, and what the traffic was."""
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as stack:
        built = parts(folder, stack.enter_context(closed_port()))
        url = stack.enter_context(serving(create_app(built)))
        prometheus = stack.enter_context(scraping(url.removeprefix("http://"), folder))
        # The first scrape is before the traffic: an increase is only seen between two scrapes.
        prometheus.wait_for("sum(stratiform_in_flight)", 0)
        traffic = Traffic(url, built.engine._ports.upstreams[Transport.EMBEDDED].ledgers)
        traffic.session("claude", 6, 1)
        traffic.session("gpt", 6, 2)
        traffic.session("homemade", 6, 3, FREE)
        traffic.failing(openai.RateLimitError, POOR)
        for _ in range(3):
            traffic.failing(openai.InternalServerError, FREE, model="down")
            traffic.greeting("replaced", "gpt")
        traffic.failing(openai.RateLimitError, **{"x-embedded-fault": "rate-limit"})
        traffic.refused_rewrite()
        traffic.session("gpt", 2, 4, BRIEF)
        traffic.session("gpt", 1, 5, SLOW)
        traffic.failing(openai.RateLimitError, SLOW, model="gpt")
        traffic.described()
        traffic.told("write tests")
        traffic.told("review")
        traffic.hang_up()
        prometheus.wait_for("sum(stratiform_requests_total)", traffic.ended)
        first = prometheus.last_scrape()
        traffic.session("claude", 4, 9)
        prometheus.wait_for("sum(stratiform_requests_total)", traffic.ended)
        until(lambda: prometheus.last_scrape() > first)
        prometheus.stop_clock()
        yield prometheus, traffic


def run(prometheus, target, values):
    query = substituted(target["expr"], values)
    return prometheus.instant(query) if target["instant"] else prometheus.range(query)


# ``increase()`` extrapolates to the ends of its window: with the few scrapes of a test by as much as a third.
EXTRAPOLATED = 0.5
INCREASE = re.compile(r"increase\(([^()\[]*)(\[[^\]]*\])\)")


def panel_value(prometheus, title, **values):
    """The one value of a panel with one query, and what it were without extrapolation. What a counter held when it was
    scraped first is no increase: how much that is depends on when Prometheus came."""
    panel = PANELS[title]
    (target,) = panel["targets"]
    plain, replaced = INCREASE.subn(r"(max_over_time(\1\2) - min_over_time(\1\2))", target["expr"])
    assert replaced == target["expr"].count("increase(")
    (found,) = run(prometheus, target, variables(**values))
    ((_, exact),) = prometheus.instant(substituted(plain, variables(**values)))
    return found[1], pytest.approx(exact, rel=EXTRAPOLATED, abs=1e-9)


@pytest.mark.parametrize("name", PANELS)
def test_every_query_runs_and_has_something_to_show(scraped, name):
    prometheus, _ = scraped
    panel = PANELS[name]
    for target in panel["targets"]:
        for values in (variables(), variables(basis="shadow")):
            found = run(prometheus, target, values)
            if target["legendFormat"] in NEVER_IN_GOOD_TRAFFIC:
                continue
            assert found, f"nothing to show for {target['expr']}"
            assert any(math.isfinite(value) for _, value in found), found
        # Filters are Grafana's regular expressions: several values, and one.
        run(prometheus, target, variables(model="(claude|gpt)", team="(rich|poor)"))
        run(prometheus, target, variables(model="claude", team="rich"))


@pytest.mark.parametrize("name", ["model", "team"])
def test_variables_find_their_values(scraped, name):
    prometheus, _ = scraped
    (variable,) = [v for v in BOARDS["cache"]["templating"]["list"] if v["name"] == name]
    metric, label = variable["definition"].removeprefix("label_values(").removesuffix(")").split(", ")
    found = prometheus.get(f"/api/v1/label/{label}/values", **{"match[]": metric})
    assert {"model": {"claude", "gpt", "down"}, "team": {"rich", "poor"}}[name] <= set(found)


def test_the_hit_ratio_is_what_the_provider_reported(scraped):
    prometheus, traffic = scraped
    exact = prometheus.scalar(
        'sum(stratiform_tokens_total{kind="read",model!="homemade"})'
        ' / sum(stratiform_tokens_total{kind=~"read|write|uncached",model!="homemade"})'
    )
    assert exact == pytest.approx(traffic.read / traffic.prompt, rel=1e-6)
    assert 0.2 < exact < 1
    shown, increased = panel_value(prometheus, "cache: Cache hit ratio", model="(claude|gpt)")
    assert shown == increased
    assert 0.2 < shown < 1


def test_the_cost_is_the_bill(scraped):
    prometheus, traffic = scraped
    assert prometheus.scalar('sum(stratiform_cost_usd_total{model="claude"})') == pytest.approx(traffic.claude_usd)
    shown, increased = panel_value(prometheus, "budgets: Cost", model="claude")
    assert 0 < shown == increased
    assert prometheus.scalar('sum(stratiform_cost_usd_total{model="homemade"})') == 0


def test_requests_are_all_counted(scraped):
    prometheus, traffic = scraped
    assert prometheus.scalar("sum(stratiform_requests_total)") == traffic.ended
    shown, increased = panel_value(prometheus, "proxy: Requests")
    assert 0 < shown == increased
    assert panel_value(prometheus, "proxy: In flight")[0] == 0


def test_savings_are_net_and_positive_where_only_a_new_order_helps(scraped):
    prometheus, _ = scraped
    for basis in ("reported", "shadow"):
        selector = f'{{model="claude",basis="{basis}"}}'
        net = prometheus.scalar(f"sum(stratiform_saved_usd_total{selector}) - sum(stratiform_lost_usd_total{selector})")
        assert net > 0
        shown, increased = panel_value(prometheus, "cache: Net saved", model="claude", basis=basis)
        assert shown == increased
        assert panel_value(prometheus, "cache: Net saved share", model="claude", basis=basis)[0] < 1


def test_the_path_is_measured(scraped):
    prometheus, _ = scraped
    targets = PANELS["proxy: Overhead"]["targets"]
    p50, p95, p99 = (prometheus.range(substituted(t["expr"], variables()))[0][1] for t in targets)
    assert 0 < p50 <= p95 <= p99
    statuses = {labels["status"] for labels, _ in prometheus.instant("sum by (status) (stratiform_requests_total)")}
    assert {"200", "429", "502", "499"} <= statuses


def test_trouble_is_counted_by_its_kind(scraped):
    prometheus, _ = scraped
    errors = {
        (labels["model"], labels["kind"]): value
        for labels, value in prometheus.instant("sum by (model, kind) (stratiform_upstream_errors_total) > 0")
    }
    assert errors == {
        ("claude", "rate-limited"): 1, ("down", "unavailable"): 2, ("down", "circuit-open"): 1,
        ("replaced", "unavailable"): 2,
    }  # fmt: skip
    assert prometheus.scalar("sum(stratiform_retries_original_total)") == 1
    assert prometheus.scalar("sum(stratiform_client_disconnects_total)") == 1
    assert prometheus.scalar('stratiform_budget_rejections_total{team="poor"}') == 1
    assert prometheus.scalar("sum(stratiform_unpriced_requests_total)") == 7
    remaining = prometheus.scalar('stratiform_budget_remaining_usd{team="rich"}')
    assert remaining == pytest.approx(100 - prometheus.scalar('sum(stratiform_cost_usd_total{team="rich"})'))


def test_structured_context_is_counted(scraped):
    prometheus, _ = scraped
    assert prometheus.scalar('stratiform_assemblies_total{assembly="economic"}') == 1
    assert prometheus.scalar('stratiform_assembly_skipped_items_total{reason="unreadable"}') == 1


def test_prompts_and_windows_are_counted(scraped):
    prometheus, _ = scraped
    assert prometheus.scalar('stratiform_composed_requests_total{outcome="composed"}') == 2
    assert prometheus.scalar('stratiform_prompt_changes_total{prompt="task"}') == 1
    assert prometheus.scalar('stratiform_edited_messages_total{edit="window-trimmed"}') > 0


def test_fallbacks_and_breakers_are_shown(scraped):
    prometheus, _ = scraped
    retried = prometheus.instant("sum by (model, kind) (stratiform_retries_total) > 0")
    assert retried == [({"model": "replaced", "kind": "unavailable"}, 2)]
    states = prometheus.range(substituted(PANELS["proxy: Circuit breakers"]["targets"][0]["expr"], variables()))
    assert sorted((labels["deployment"], state) for labels, state in states) == [("down", 2), ("replaced", 2)]


def test_what_the_service_exports_is_well_formed(scraped):
    prometheus, _ = scraped
    (target,) = prometheus.get("/api/v1/targets")["activeTargets"]
    assert target["health"] == "up", target["lastError"]
    with urllib.request.urlopen(target["scrapeUrl"], timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = answer.read()
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
