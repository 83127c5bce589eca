"""The pages over HTTP: what they show is what the admin API answers, and nobody else sees or changes anything."""

import gzip
import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.app.ui import COOKIE
from proxy.app.ui.pages import usd
from proxy.kit.errors import StoreError
from tests.pages import CONFIG, MASTER, OPEN, WITH_MASTER, Browser, visited

HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}"
PAGES = ["/ui", "/ui/sessions", "/ui/teams", "/ui/keys", "/ui/budgets"]


async def test_the_pages_show_what_the_admin_api_answers_and_the_bill_is_the_ledgers(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        for turn in range(6):
            await browser.ask(turn)
        await browser.enter()
        (session,) = (await browser.admin("sessions"))["data"]
        ledger = (await browser.admin("spend"))["total"]
        requests = (await browser.admin(f"sessions/{session['id']}/requests"))["data"]
        assert session["cost_usd"] == pytest.approx(ledger["cost_usd"], abs=1e-9)
        assert sum(one["planned_layout"]["cost_usd"] for one in requests) == pytest.approx(ledger["cost_usd"], abs=1e-7)
        for name in ("read_tokens", "write_tokens", "uncached_tokens"):
            assert sum(one["planned_layout"][name] for one in requests) == ledger[name] == session[name]
        overview, page = await browser.get("/ui"), await browser.get(f"/ui/sessions/{session['id']}")
        for reply in (overview, page):
            assert reply.status_code == 200
            assert f"<dd>{usd(ledger['cost_usd'])}</dd>" in reply.text
            assert f"6 requests, {usd(session['cost_usd'])}" in html.unescape(reply.text)
        for block in (await browser.admin(f"sessions/{session['id']}/breakdown"))["blocks"]:
            assert f"{block['name']}: {block['tokens']:,} tokens" in page.text
        for point in session["breakpoints"]:
            assert f"{point['tokens']:,}" in page.text
        listed = (await browser.get("/ui/sessions")).text
        assert f'href="/ui/sessions/{session["id"]}"' in listed


async def test_nobody_gets_in_without_the_master_key(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        await browser.ask(0)
        for path in (*PAGES, "/ui/events?page=sessions", "/ui/sessions/x/picture.svg", "/ui/nothing"):
            reply = await browser.get(path)
            assert reply.status_code == 401, path
            assert "claude" not in reply.text
        assert (await browser.enter("sk-guessed")).status_code == 401
        assert not browser.cookies
        reply = await browser.enter()
        assert (reply.status_code, reply.headers["location"]) == (303, "/ui")
        cookie = reply.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/ui", "Max-Age=3600"))
        assert [(await browser.get(path)).status_code for path in PAGES] == [200] * 5
        assert (await browser.send("POST", "/ui/logout")).status_code == 303


async def test_a_forged_or_expired_cookie_gets_a_sentence_and_no_page(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        await browser.enter()
        value = browser.cookies[COOKIE]
        until, nonce, signature = value.split(".")
        forged = [
            f"{int(until) + 9999}.{nonce}.{signature}", f"{until}.{nonce}.{'0' * 64}", f"{until}.{nonce}.", "",
            f"1.{nonce}.{signature}", "x" * 5000, f"{until}.{nonce}.{signature}0", f"٣.{nonce}.{signature}",
        ]  # fmt: skip
        for one in forged:
            browser.cookies = {}
            reply = await browser.send("GET", "/ui/keys", {"cookie": f"{COOKIE}={one}".encode()})
            assert reply.status_code == 401
            assert "Your visit has ended" in reply.text
        browser.app = create_later(browser, 3601.0)
        browser.cookies = {COOKIE: value}
        assert (await browser.get("/ui")).status_code == 401


def create_later(browser: Browser, by_s: float) -> object:
    """The same app, as time has passed by for its gate."""
    ui = browser.assembly.parts.ui
    ui.gate = replace(ui.gate, now=lambda now=ui.gate.now: now() + by_s)  # type: ignore[union-attr]
    return browser.app


async def test_a_form_without_the_token_of_the_visit_changes_nothing(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        await browser.enter()
        for token in ("", "0" * 64):
            fields = {"action": "create", "team": "default", "usd": "5", "token": token}
            reply = await browser.send("POST", "/ui/budgets", data=fields)
            assert reply.status_code == 400
        other = Browser(browser.assembly)
        await other.enter()
        token = re.search(r'name="token" value="(\w+)"', (await other.get("/ui/budgets")).text)
        assert token is not None
        fields = {"action": "create", "team": "default", "usd": "5", "token": token[1]}
        assert (await browser.send("POST", "/ui/budgets", data=fields)).status_code == 400
        assert (await browser.admin("budgets"))["data"] == []


async def test_a_request_under_another_name_or_from_another_site_is_refused(tmp_path: Path) -> None:
    text = WITH_MASTER.replace("{store: memory}", "{store: memory, ui: {hosts: [stratiform.example]}}")
    async with visited(tmp_path, text) as browser:
        await browser.enter()
        for host in ("evil.example", "evil.example:4000", "127.0.0.1.evil.example", "", "[::2]:4000"):
            assert (await browser.get("/ui", host=host)).status_code == 403, host
        for host in ("localhost:4000", "127.0.0.1", "[::1]:4000", "LOCALHOST"):
            assert (await browser.get("/ui", host=host)).status_code == 200, host
        assert (await browser.get("/ui", host="stratiform.example")).status_code == 200
        for origin in ("http://evil.example", "null", "http://127.0.0.1:4001"):
            assert (await browser.get("/ui", origin=origin)).status_code == 403
        assert (await browser.get("/ui", origin="http://127.0.0.1:4000")).status_code == 200


async def test_two_browsers_that_raise_one_budget_lose_nothing(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        other = Browser(browser.assembly)
        await browser.enter()
        await other.enter()
        assert (await browser.submit("budgets", "create", team="default", usd="10")).status_code == 303
        raised = {"id": "default/total", "expected": "10.0"}
        assert (await browser.submit("budgets", "raise", usd="20", **raised)).status_code == 303
        reply = await other.submit("budgets", "raise", usd="15", **raised)
        assert reply.status_code == 409
        assert "it is 20 usd now" in reply.text
        (budget,) = (await browser.admin("budgets"))["data"]
        assert budget["usd"] == 20
        assert (await other.submit("budgets", "raise", usd="30", id="default/total", expected="20")).status_code == 303
        assert (await other.submit("budgets", "restore", spent="4.5", id="default/total")).status_code == 303
        (budget,) = (await browser.admin("budgets"))["data"]
        assert (budget["usd"], budget["spent"]) == (30, 4.5)
        for amount in ("much", "1e999", "nan", "-3"):
            reply = await other.submit("budgets", "raise", usd=amount, id="default/total", expected="30")
            assert reply.status_code == 400, amount
            assert 'role="alert"' in reply.text


async def test_a_key_is_shown_once_and_can_be_revoked(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        await browser.enter()
        assert (await browser.submit("teams", "create", name="red")).status_code == 303
        reply = await browser.submit("keys", "create", team="red", note=HOSTILE, models="m, n")
        (key,) = re.findall(r"sk-strat-[\w-]+", reply.text)
        assert reply.headers["cache-control"] == "no-store"
        page = (await browser.get("/ui/keys?team=red")).text
        assert key not in page
        assert "<script>alert" not in page
        (made,) = (await browser.admin("keys"))["data"]
        assert (made["team"], made["models"]) == ("red", ["m", "n"])
        assert (await browser.submit("keys", "revoke", id=made["id"])).status_code == 303
        (made,) = (await browser.admin("keys"))["data"]
        assert made["status"] == "revoked"
        for kind, action in (("keys", "drop"), ("sessions", "create"), ("nothing", "create")):
            assert (await browser.submit(kind, action)).status_code in (400, 404)


async def test_without_a_master_key_this_machine_may_read_and_nobody_may_change(tmp_path: Path) -> None:
    async with visited(tmp_path, OPEN) as browser:
        await browser.ask(0)
        page = await browser.get("/ui")
        assert page.status_code == 200
        assert "read-only" in page.text
        assert "<form" not in (await browser.get("/ui/keys")).text
        fields = {"action": "create", "team": "default", "usd": "5", "token": ""}
        assert (await browser.send("POST", "/ui/budgets", data=fields)).status_code == 400
        for header in ("x_forwarded_for", "forwarded", "via"):
            assert (await browser.get("/ui", **{header: "1.2.3.4"})).status_code == 403
        browser.peer = "192.0.2.7"
        assert (await browser.get("/ui")).status_code == 403
        assert (await browser.send("GET", "/admin/sessions")).status_code == 404


@pytest.mark.parametrize("settings", ["{store: memory, ui: {enabled: false}}", "{store: memory, host: 0.0.0.0}"])
async def test_there_are_no_pages_where_nobody_may_look_at_them(tmp_path: Path, settings: str) -> None:
    async with visited(tmp_path, f"{CONFIG}stratiform: {settings}\n") as browser:
        assert (await browser.get("/ui")).status_code == 404
        assert (await browser.get("/ui/static/style.css")).status_code == 404


async def test_a_session_that_is_gone_and_a_page_that_there_is_not_are_told(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        await browser.enter()
        gone = ["/ui/sessions/gone", "/ui/sessions/gone/requests", "/ui/sessions/gone/picture.svg", "/ui/nothing",
                "/ui/sessions/a/b/c", "/ui/static/../pages.py", "/ui/static/%2e%2e/__init__.py", "/ui/events?page=keys",
                "/ui/events?page=sessions/gone"]  # fmt: skip
        for path in gone:
            reply = await browser.get(path)
            assert reply.status_code == 404, path
            assert 'role="alert"' in reply.text
        for path in ("/ui?since=rubbish", "/ui/sessions?behind=rubbish"):
            assert (await browser.get(path)).status_code == 400
        assert (await browser.send("DELETE", "/ui/keys")).status_code == 405


async def test_a_store_that_is_away_costs_what_only_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with visited(tmp_path) as browser:
        await browser.ask(0)
        await browser.enter()
        store = browser.assembly.parts.ui.pages._service._store  # type: ignore[union-attr]

        async def away(*arguments: object) -> None:
            raise StoreError("gone fishing")

        for name in ("page", "load", "spend"):
            monkeypatch.setattr(store, name, away)
        for path in ("/ui", "/ui/sessions"):
            reply = await browser.get(path)
            assert reply.status_code == 200
            assert "The store does not answer" in reply.text
        (name,) = re.findall(r'href="/ui/sessions/([^"/]+)"', (await browser.get("/ui/sessions")).text)
        assert (await browser.get(f"/ui/sessions/{name}")).status_code == 200


async def test_names_that_clients_chose_are_escaped_and_cut(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        await browser.enter()
        await browser.ask(0, user=HOSTILE + "x" * 16_000)
        (session,) = (await browser.admin("sessions"))["data"]
        for path in (
            "/ui",
            "/ui/sessions",
            f"/ui/sessions/{session['id']}",
            f"/ui/sessions?q={'y' * 5000}%3Cscript%3E",
        ):
            reply = await browser.get(path)
            assert reply.status_code == 200
            assert len(reply.content) < 60_000
            assert "<script>alert" not in reply.text
            assert "x" * 300 not in reply.text


async def test_every_answer_forbids_what_is_not_ours_and_has_nothing_inline(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        await browser.ask(0)
        stranger = Browser(browser.assembly)
        await browser.enter()
        (session,) = (await browser.admin("sessions"))["data"]
        own = f"/ui/sessions/{session['id']}"
        replies = [await browser.get(path) for path in (*PAGES, own, f"{own}/requests", "/ui/nothing")]
        replies.append(await stranger.get("/ui"))
        for reply in replies:
            policy = reply.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert (
                re.search(r"<style|<script(?! src=\"/ui/)| style=| on\w+=|javascript:|https?://(?!www\.w3)", reply.text)
                is None
            )
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["cache-control"] == "no-store"


async def test_the_saved_picture_is_one_file_without_texts_of_prompts(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        await browser.ask(0, words="secretly")
        await browser.enter()
        (session,) = (await browser.admin("sessions"))["data"]
        reply = await browser.get(f"/ui/sessions/{session['id']}/picture.svg")
        assert reply.headers["content-type"] == "image/svg+xml"
        assert "attachment" in reply.headers["content-disposition"]
        assert "<style>" in reply.text
        assert "secretly" not in reply.text
        assert re.search(r"(?:href|src|url\((?!#))", reply.text) is None


@pytest.mark.parametrize("shows", [False, True])
async def test_texts_are_shown_only_where_the_operator_says_so_and_each_page_tells(tmp_path: Path, shows: bool) -> None:
    settings = f"{{store: memory, ui: {{show_text: {str(shows).lower()}}}}}"
    async with visited(tmp_path, WITH_MASTER.replace("{store: memory}", settings)) as browser:
        await browser.ask(0, words="<b>secretly</b>")
        await browser.enter()
        (session,) = (await browser.admin("sessions"))["data"]
        page = (await browser.get(f"/ui/sessions/{session['id']}")).text
        assert ("&lt;b&gt;secretly" in page) is shows
        assert "<b>secretly" not in page
        for path in PAGES:
            assert ("ui.show_text" in (await browser.get(path)).text) is shows
        store = browser.assembly.parts.ui.pages._service._store  # type: ignore[union-attr]
        assert b"secretly" not in repr(vars(store)).encode()


async def test_sessions_are_searched_and_paged(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        for number in range(3):
            await browser.ask(0, talk=f"talk {number}", words=str(number), user=f"user-{number}")
        await browser.enter()
        assert (await browser.get("/ui/sessions")).text.count('<a href="/ui/sessions/') == 3
        page = (await browser.get("/ui/sessions?q=DEFAULT+user-1")).text
        assert page.count('<tr><th scope="row">') == 1
        assert "No such session" in (await browser.get("/ui/sessions?q=user-9")).text
        assert len((await browser.admin("sessions?q=user-2&limit=1"))["data"]) == 1


async def test_a_login_leads_to_a_page_of_ours_and_nowhere_else(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        wanted = {
            "/keys": "/ui/keys", "": "/ui", "//evil.example": "/ui", "https://evil.example": "/ui", "/\\evil": "/ui",
            "/x\r\nset-cookie: a=b": "/ui",
        }  # fmt: skip
        for asked, found in wanted.items():
            reply = await browser.send("POST", "/ui/login", data={"key": MASTER, "next": asked})
            assert reply.headers["location"] == found


async def test_what_every_page_needs_is_small(tmp_path: Path) -> None:
    async with visited(tmp_path) as browser:
        for turn in range(3):
            await browser.ask(turn)
        await browser.enter()
        size = len(gzip.compress((await browser.get("/ui")).content))
        for name in ("style.css", "script.js", "icon.svg"):
            reply = await browser.get(f"/ui/static/{name}")
            assert reply.status_code == 200
            size += int(reply.headers["content-length"])
        assert size < 60_000
    script = Path("proxy/app/ui/static/script.js")
    assert len(script.read_text().splitlines()) <= 300
