"""What axe finds on a page."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
# What axe finds in order would take as long to get here as axe takes to find it.
FIND = """axe.run({ resultTypes: ["violations"] })
    .then((found) => found.violations.map((broken) => [broken.id, broken.nodes[0].html]))"""


def violations(page: Page) -> list[tuple[str, str]]:
    """Returns the rules that the page breaks, each with the first element that breaks it."""
    page.evaluate(AXE)
    found: Any = page.evaluate(FIND)
    return [(rule, element) for rule, element in found]
