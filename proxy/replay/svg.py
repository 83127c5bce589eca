"""A few SVG elements as text."""

from collections.abc import Iterable
from html import escape


def element(name: str, text: str = "", **attributes: object) -> str:
    """One element; ``_`` in an attribute's name stands for ``-``, a trailing one is dropped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{written}>{escape(text, quote=False)}</{name}>" if text else f"<{name}{written}/>"


def picture(width: float, height: float, title: str, style: str, body: Iterable[str]) -> str:
    """A whole document. ``style`` is CSS; empty where the page that shows the picture has it."""
    size = f'viewBox="0 0 {_number(width)} {_number(height)}" width="{_number(width)}" height="{_number(height)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(title, quote=False)}</title>",
            *([f"<style>{style}</style>"] if style else []),
            *body,
            "</svg>\n",
        ]
    )


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
