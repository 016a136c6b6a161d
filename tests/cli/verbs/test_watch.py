"""What is news to somebody who watches."""

from __future__ import annotations

from typing import Any

from cli.verbs.watch import ShownObjects


def item(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": version}}


def test_what_a_list_showed_is_not_shown_again_by_its_event() -> None:
    news = ShownObjects(set())
    assert news.of("listed", item("a", 5))
    assert not news.of("modified", item("a", 5))
    assert news.of("modified", item("a", 6))
    assert not news.of("listed", item("a", 6))


def test_a_list_after_a_gap_shows_what_went_meanwhile_once() -> None:
    news = ShownObjects(set())
    news.of("listed", item("a", 5))
    news.of("listed", item("b", 6))
    assert news.gone({"b"}) == [("deleted", item("a", 5))]
    assert news.gone({"b"}) == []
    assert not news.of("deleted", item("a", 7))


def test_only_what_was_named_is_news() -> None:
    news = ShownObjects({"a"})
    assert news.of("listed", item("a", 1)) and not news.of("listed", item("b", 1))
