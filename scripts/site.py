"""A hook for mkdocs: links that leave docs/ become links to the repository's own files, by name."""

from __future__ import annotations

import re
from typing import Any

OUTWARD = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replaces links to files outside docs/, which are no pages of the site, by their paths."""
    up = page.file.src_uri.count("/")
    return OUTWARD.sub(lambda found: _name_link(found, up), markdown)


def _name_link(found: re.Match[str], up: int) -> str:
    climbs = found[0].count("../")
    if climbs <= up:
        return found[0]  # still inside
    text, path = found[1], found[2]
    return f"{text}" if text.strip("`") == path else f"{text} (`{path}`)"
