"""HTML that is put together without a template engine; whatever is not HTML already is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

from cli.output import plain


class HtmlText(str):
    """Text that is HTML already, made by `element` and `join` alone."""

    __slots__ = ()


HtmlPart: TypeAlias = HtmlText | str
EMPTY_ELEMENTS = frozenset(("meta", "path", "rect", "wbr"))


def join(parts: Iterable[HtmlPart]) -> HtmlText:
    """Joins parts; text becomes one line that neither the page nor a direction character can change."""
    return HtmlText("".join(part if isinstance(part, HtmlText) else escape(plain(part)) for part in parts))


def element(tag: str, /, *children: HtmlPart, **attributes: object) -> HtmlText:
    """Returns an element. `class_` is `class`, `aria_label` is `aria-label`, `viewBox` stays; None leaves one out."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(plain(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in EMPTY_ELEMENTS and not children:
        return HtmlText(f"<{tag}{words}>" if tag in ("meta", "wbr") else f"<{tag}{words}/>")
    return HtmlText(f"<{tag}{words}>{join(children)}</{tag}>")
