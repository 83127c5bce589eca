"""The templates, and how they are filled. Every text is escaped, whatever its source."""

import hashlib
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from proxy.core.value import dataclass, field
from proxy.ui import words

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, the template of the part that changes while the page is open, and the data of that part.
    ``forms`` is the template of the unchanging content in front of that part; empty if there is none. ``nav`` is the
    section that the page belongs to."""

    title: str
    template: str
    data: Mapping[str, Any] = field(default_factory=dict)
    forms: str = ""
    nav: str = ""
    status: int = 200
    is_live: bool = True


class Templates:
    """Reads the templates from the package when the first page is asked for."""

    @cached_property
    def _environment(self) -> "Environment":
        # A proxy whose pages nobody opens does not load the template language.
        from proxy.replay.templates import templates_in

        environment = templates_in(_HERE / "templates")
        environment.filters |= {
            name: getattr(words, name)
            for name in ("blamed", "cut", "moment", "percent", "piece", "short", "times", "usd")
        }
        return environment

    def part(self, page: Page, about: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The body of a page. It changes while the page is open; with the data ``about`` one visit, it does not
        change."""
        return self._environment.get_template(page.template).render({**about, **page.data})

    def whole(self, page: Page, part: str, about: Mapping[str, Any]) -> str:
        """The page with this part. ``about`` holds the values that every page shows."""
        forms = self._environment.get_template(page.forms).render({**page.data, **about}) if page.forms else ""
        given = {"page": page, "part": Markup(part), "forms": Markup(forms), "seen": mark_of(part), **about}
        return self._environment.get_template("base.html").render(given)


def mark_of(part: str) -> str:
    """The mark that tells two versions of a part from each other."""
    return hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@cache
def assets() -> Mapping[str, tuple[str, bytes]]:
    """The style sheet, the script and the icon: their types and contents, by their names below ``/ui/static/``."""
    return {
        "style.css": ("text/css; charset=utf-8", static("style.css") + static("picture.css")),
        "script.js": ("text/javascript; charset=utf-8", static("script.js")),
        "icon.svg": ("image/svg+xml", static("icon.svg")),
    }


def static(name: str) -> bytes:
    """A file of the package."""
    return (_HERE / "static" / name).read_bytes()
