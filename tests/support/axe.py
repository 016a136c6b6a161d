"""What axe finds on a page."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
# What axe finds in order would take as long to get here as axe takes to find it.
FIND = """(leftOut) => axe.run(leftOut ? { exclude: [leftOut] } : document, { resultTypes: ["violations"] })
    .then((found) => found.violations.map((broken) => [broken.id, broken.nodes[0].html]))"""


def violations(page: Page, left_out: str = "") -> list[tuple[str, str]]:
    """Returns the rules that the page breaks, each with the first element that breaks it.

    What a selector leaves out is not looked at: axe takes seconds for the colours of a table's thousand equal cells.
    """
    page.evaluate(AXE)
    found: Any = page.evaluate(FIND, left_out)
    return [(rule, element) for rule, element in found]
