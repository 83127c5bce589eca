"""The templates, and how they are filled. Every text is escaped, wherever it comes from."""

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
    """A page: its title, the template of the part that changes while somebody looks, and what that shows. ``forms`` is
    a template with what stands in front of it and does not change, empty for none. ``nav`` is the section that it
    belongs to."""

    title: str
    template: str
    data: Mapping[str, Any] = field(default_factory=dict)
    forms: str = ""
    nav: str = ""
    status: int = 200
    is_live: bool = True


class Templates:
    """Reads the templates from the package, at the first page that is asked for."""

    @cached_property
    def _environment(self) -> "Environment":
        # A proxy whose pages nobody opens does not pay for the language of templates.
        from proxy.replay.templates import templates_in

        environment = templates_in(_HERE / "templates")
        environment.filters |= {
            name: getattr(words, name)
            for name in ("blamed", "cut", "moment", "percent", "piece", "short", "times", "usd")
        }
        return environment

    def part(self, page: Page, about: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The body of a page: what changes while somebody looks, or, ``about`` one visit, what does not."""
        return self._environment.get_template(page.template).render({**about, **page.data})

    def whole(self, page: Page, part: str, about: Mapping[str, Any]) -> str:
        """The page with this part. ``about`` says what stands on every page."""
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
