"""What axe finds on a page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
# What axe finds in order would take as long to get here as axe takes to find it.
FIND = """([leftOut, rules]) => axe.run(leftOut ? { exclude: [leftOut] } : document,
        { resultTypes: ["violations"], ...(rules.length ? { runOnly: { type: "rule", values: rules } } : {}) })
    .then((found) => found.violations.map((broken) => [broken.id, broken.nodes[0].html]))"""
# The rules that look at colours. Dark changes nothing else, so that all other rules find what they find in light.
OF_COLOURS = ("color-contrast", "link-in-text-block")


def violations(page: Page, left_out: str = "", rules: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Returns the rules that the page breaks, of these rules or of all, each with the first element that breaks it.

    What a selector leaves out is not looked at: axe takes seconds for the colours of a table's thousand equal cells.
    """
    page.evaluate(AXE)
    found: Any = page.evaluate(FIND, [left_out, list(rules)])
    return [(rule, element) for rule, element in found]


def violations_in_either_light(page: Page, left_out: str = "") -> list[tuple[str, str]]:
    """Returns the rules that the page breaks in light, and those of colours that it breaks in dark."""
    page.emulate_media(color_scheme="light")
    found = violations(page, left_out)
    page.emulate_media(color_scheme="dark")
    return found + violations(page, left_out, OF_COLOURS)
