"""Nodes before and after a plan: what moves is marked on both sides, what stays is not, other nodes are left out."""

from __future__ import annotations

from typing import Any

from app.console.moves import draw_moves, name_changed_nodes
from app.console.wording import THIN
from app.store.fleet.fleet_map import MapNode
from tests.app.console.test_drawing import instance, planned


def node(name: str, gpus: int = 2) -> MapNode:
    return MapNode(name, "l4-24gb", gpus, None, None)


def plans(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Any:
    return planned(instances=before), planned(instances=after)


def test_a_moved_box_is_marked_where_it_leaves_and_where_it_comes() -> None:
    before, after = plans(
        [instance("shop/a", "n1", 0), instance("shop/b", "n1", 0, 50), instance("shop/c", "n3", 0)],
        [instance("shop/b", "n1", 0, 50), instance("shop/a", "n2", 1), instance("shop/c", "n3", 0)],
    )
    assert name_changed_nodes(before, after) == ["n1", "n2"]
    first, second = draw_moves(before, after, [node("n1"), node("n2")]).nodes
    assert [[box.label for box in side.moved] for side in (*first.sides, *second.sides)] == [
        [f"shop/a leaves n1/0, 25{THIN}%"], [], [], [f"shop/a comes to n2/1, 25{THIN}%"],
    ]  # fmt: skip
    (box,) = second.sides[1].moved
    assert box.link == "/services/shop/a"
    assert (first.sides[0].stays, first.sides[1].stays) != ("", ""), "shop/b stays"
    assert first.lines == (f"GPU 0: -shop/a 25{THIN}%",)


def test_one_of_two_alike_that_leaves_is_one_box() -> None:
    before, after = plans([instance("shop/a", "n1", 0)] * 2, [instance("shop/a", "n1", 0)])
    ((moves),) = draw_moves(before, after, [node("n1")]).nodes
    assert [len(side.moved) for side in moves.sides] == [1, 0]


def test_another_share_is_marked_on_both_sides_and_another_batch_is_no_move() -> None:
    before, after = plans([instance("shop/a", "n1", 0, 25)], [instance("shop/a", "n1", 0, 30)])
    (moves,) = draw_moves(before, after, [node("n1")]).nodes
    assert [len(side.moved) for side in moves.sides] == [1, 1]
    batch = [instance("shop/a", "n1", 0) | {"batch": 16, "memoryGib": 9.0}]
    assert name_changed_nodes(*plans([instance("shop/a", "n1", 0)], batch)) == []


def test_a_node_that_does_not_exist_yet_shows_the_gpus_that_are_used() -> None:
    before, after = plans([], [instance("shop/a", "new", 3)])
    (moves,) = draw_moves(before, after, [node("new", 0)]).nodes
    assert moves.lines == (f"GPU 3: +shop/a 25{THIN}%",)


def test_of_many_nodes_the_first_are_drawn_and_the_others_counted() -> None:
    names = [f"n{number}" for number in range(70)]
    before, after = plans([], [instance("shop/a", name, 0) for name in names])
    found = draw_moves(before, after, [node(name) for name in names])
    assert (len(found.nodes), found.more) == (50, 20)
