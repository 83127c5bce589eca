"""``make screenshots``: pictures of every page, in light and dark, on a desktop and on a phone."""

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tests.browser.chromium import DESKTOP, PHONE, chromium, missing, visitor
from tests.browser.site import site

_LOOKS = (("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE))


def main() -> int:
    """Write the pictures; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("out/screenshots"), help="where they go")
    folder: Path = parser.parse_args().folder
    if missing():
        print(f"error: {missing()}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state, site(Path(state)) as served, chromium() as browser:
        for scheme, size in _LOOKS:
            with visitor(browser, served, scheme=scheme, size=size) as visited:
                look = f"{scheme}-{size[0]}.png"
                visited.open("")
                visited.page.screenshot(path=folder / f"login-{look}")
                visited.log_in()
                for address in served.addresses():
                    visited.open(address)
                    name = re.sub(r"\W+", "-", address).strip("-") or "overview"
                    visited.page.screenshot(path=folder / f"{name}-{look}", full_page=True)
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
