"""The pages in a real Chromium: every one opens, shows what the admin API says, and can be used by everybody."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.chromium import PHONE, Scheme, Visitor, chromium, missing, visitor
from tests.browser.site import Site, site
from tests.services import absent
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if missing():
        absent(missing())
    with site(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture(scope="module")
def browser(served: Site) -> Iterator["Browser"]:
    with chromium() as found:
        yield found


@pytest.fixture
def inside(browser: "Browser", served: Site) -> Iterator[Visitor]:
    """Somebody who has logged in."""
    with visitor(browser, served) as found:
        found.log_in()
        yield found


def dollars(text: str) -> float:
    found = re.fullmatch(r"([−<]*)\$([\d.,e-]+)", text.strip())
    assert found, text
    return float(found[2].replace(",", "")) * (-1 if "−" in found[1] else 1)


def tiles(visited: Visitor) -> dict[str, str]:
    rows = visited.page.locator("dl.tiles > div").all()
    return {row.locator("dt").inner_text(): row.locator("dd").inner_text() for row in rows}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_without_a_complaint_and_axe_finds_nothing(
    browser: "Browser", served: Site, scheme: Scheme
) -> None:
    found = {}
    with visitor(browser, served, scheme=scheme) as visited:
        assert visited.open("") == 401
        found["login"] = visited.complaints + visited.violations()
        visited.log_in()
        for address in served.addresses():
            assert visited.open(address) == (404 if "gone" in address else 200)
            visited.unfold()
            found[address] = visited.violations() + visited.complaints
    assert {address: faults for address, faults in found.items() if faults} == {}


def test_no_page_scrolls_sideways_on_a_phone(browser: "Browser", served: Site) -> None:
    found = {}
    with visitor(browser, served, size=PHONE) as visited:
        visited.open("")
        found["login"] = visited.overhang()
        visited.log_in()
        for address in served.addresses():
            visited.open(address)
            visited.unfold()
            found[address] = visited.overhang()
    assert {address: pixels for address, pixels in found.items() if pixels > 0} == {}


def test_everything_that_can_be_used_is_reached_by_the_tab_key(inside: Visitor, served: Site) -> None:
    usable = """() => [...document.querySelectorAll(
        'a[href], button, summary, select, input:not([type=hidden]), [tabindex="0"]')]
        .filter(one => one.checkVisibility()).map((one, at) => { one.dataset.place = at; return one.outerHTML; })"""
    focused = """() => { const one = document.activeElement, style = getComputedStyle(one);
        return [one.dataset.place ?? '', style.outlineStyle !== 'none' && style.outlineWidth !== '0px']; }"""
    for address in served.addresses():
        inside.open(address)
        elements, reached = inside.page.evaluate(usable), []
        for _ in elements:
            inside.page.keyboard.press("Tab")
            place, is_seen = inside.page.evaluate(focused)
            assert is_seen, (address, "the focus is not seen", place and elements[int(place)])
            reached.append(place)
        assert reached == [str(place) for place in range(len(elements))], address


def test_sessions_are_those_of_the_admin_api(inside: Visitor, served: Site) -> None:
    inside.open("/sessions")
    listed = served.admin("sessions")["data"]
    rows = [row.locator("th, td").all_inner_texts() for row in inside.page.locator("#live tbody tr").all()]
    assert len(rows) == len(listed)
    for row, one in zip(rows, listed, strict=True):
        assert row[:5] == [one["id"], one["team"], one["model"], one["client"], one["mode"]]
        assert int(row[6]) == one["requests"]
        assert dollars(row[7]) == pytest.approx(one["cost_usd"], abs=0.005)
        assert dollars(row[8]) == pytest.approx(one["saved_usd"], abs=0.005)
        assert float(row[9].rstrip("%")) == pytest.approx(100 * one["hit_ratio"], abs=0.05)


def test_the_overview_is_the_ledgers_report(inside: Visitor, served: Site) -> None:
    inside.open("?since=30d")
    total = served.admin("spend?by=team&since=30d")["total"]
    found = tiles(inside)
    assert dollars(found["Cost"]) == pytest.approx(total["cost_usd"], abs=0.005)
    assert dollars(found["Saved"]) == pytest.approx(total["saved_usd"], abs=0.005)
    assert int(found["Requests"].replace(",", "")) == total["requests"]


def test_a_session_shows_its_picture_its_layers_and_its_bill(inside: Visitor, served: Site) -> None:
    one = served.sessions()[0]
    shown: Any = served.admin(f"sessions/{one['id']}/breakdown")
    inside.open("/sessions")
    inside.page.get_by_role("link", name=one["id"], exact=True).click()
    found = tiles(inside)
    assert dollars(found["Cost"]) == pytest.approx(one["cost_usd"], abs=0.005)
    assert int(found["Requests"]) == one["requests"]
    caption = inside.page.locator("figcaption").inner_text()
    assert f"{one['requests']} requests, {found['Cost']}" in caption
    assert inside.page.locator(".halves svg").count() == 2
    assert inside.page.locator(".halves svg title").first.text_content()
    layers = inside.page.locator("details > summary").all_inner_texts()
    assert [re.sub(r"tokens.*", "tokens", text) for text in layers] == [
        f"{block['name']}: {block['tokens']:,} tokens" for block in shown["blocks"]
    ]


def test_a_picture_is_saved_as_one_file_without_text_of_prompts(inside: Visitor, served: Site) -> None:
    inside.open(f"/sessions/{served.sessions()[0]['id']}")
    with inside.page.expect_download() as saving:
        inside.page.get_by_role("link", name="Save picture").click()
    path = saving.value.path()
    text = path.read_text("utf-8")
    assert text.startswith("<svg")
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert "<script" not in text


def test_an_open_page_follows_what_happens(inside: Visitor, served: Site) -> None:
    inside.open("/sessions")
    before = inside.page.locator("#live tbody tr").count()
    inside.page.get_by_text("Live.", exact=True).wait_for()
    inside.page.evaluate("() => { window.isSame = true; }")
    served.ask("demo-support", "Does this page follow?", user="somebody-new")
    # On a busy machine the task that looks for open pages rests for half a minute.
    inside.page.locator(f"#live tbody tr:nth-child({before + 1})").wait_for(timeout=60_000)
    assert inside.page.evaluate("() => window.isSame")
    assert inside.complaints == []


def test_a_name_that_a_client_chose_is_a_text(inside: Visitor, served: Site) -> None:
    name = "<img src=x onerror=alert(1)>"
    served.ask("demo-support", "Who am I? " * 50, user=name)
    inside.open("/sessions")
    inside.page.get_by_label("Search").fill("img")
    inside.page.keyboard.press("Enter")
    inside.page.wait_for_url("**/ui/sessions?q=img*")
    for link in inside.page.locator("#live tbody th a").all():
        link.click()
        break
    assert inside.page.locator("main img").count() == 0
    assert inside.complaints == []


def test_a_team_a_key_and_a_budget_are_made_and_changed_by_keyboard(browser: "Browser", served: Site) -> None:
    with visitor(browser, served) as visited:
        visited.log_in(by_keyboard=True)
        page, keys = visited.page, visited.page.keyboard

        def type_into(summary: str, fields: dict[str, str], button: str) -> None:
            page.locator("summary", has_text=summary).first.focus()
            keys.press("Enter")
            for label, text in fields.items():
                page.get_by_label(label, exact=True).last.focus()
                keys.type(text)
            page.get_by_role("button", name=button).last.focus()
            with page.expect_navigation():
                keys.press("Enter")

        visited.open("/teams")
        type_into("Make a team", {"Name": "typed"}, "Make the team")
        assert "typed" in [one["name"] for one in served.admin("teams")["data"]]
        visited.open("/keys?team=typed")
        type_into("Make a key", {"User": "alice"}, "Make the key")
        shown = page.locator("code.key").inner_text()
        (key,) = served.admin("keys?team=typed")["data"]
        assert shown.startswith("sk-")
        assert key["user"] == "alice"
        served.ask(shown, "hello")
        visited.open("/keys?team=typed")
        assert shown not in page.content()
        type_into("Revoke", {}, "Revoke")
        assert served.admin("keys?team=typed")["data"][0]["status"] == "revoked"
        visited.open("/budgets?team=typed")
        type_into("Make a budget", {"Name": "cap", "USD": "5"}, "Make the budget")
        (budget,) = served.admin("budgets?team=typed")["data"]
        assert budget["usd"] == 5
        page.locator("summary", has_text="Raise").first.focus()
        keys.press("Enter")
        keys.press("Tab")
        keys.press("Control+a")
        keys.type("7.5")
        with page.expect_navigation():
            keys.press("Enter")
        (budget,) = served.admin("budgets?team=typed")["data"]
        assert budget["usd"] == 7.5
        page.get_by_role("button", name="Log out").focus()
        keys.press("Enter")
        page.get_by_label("Master key").wait_for()
        assert visited.open("/teams") == 401


def _rows(visited: Visitor) -> int:
    return visited.page.locator("#live tbody tr").count()


def test_pages_work_without_scripts(browser: "Browser", served: Site) -> None:
    with visitor(browser, served, scripts=False) as visited:
        visited.log_in()
        # A session of another test may be listed between the two questions.
        until(lambda: visited.open("/sessions") == 200 and _rows(visited) == len(served.sessions()))
        visited.page.get_by_role("link", name="Reload").click()
        assert visited.page.url == f"{served.url}/ui/sessions"
