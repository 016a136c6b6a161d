"""Words the least change beside the best plan; known also where no solvers are."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.answer.explain.wording import count, money, rate
from app.control.answer.whatif.wire import MovePointWire

FEW_OTHERS = 3  # services that may move for another's change
SMALL = 1e-6  # of a rate or an amount


def describe_curve(points: Sequence[MovePointWire]) -> list[str]:
    """Returns sentences: what the least change costs, what more moves save, and why more have to move, if they do."""
    if not points:
        return []
    first, last = points[0], points[-1]
    if first["most"] != 0:
        return ["no plan was found that leaves all other services where they are"]
    sentences = []
    if first["unservedPerSecond"] > SMALL:
        enough = next((point for point in points if point["unservedPerSecond"] <= SMALL), None)
        lack = f"with no other service moved, {rate(first['unservedPerSecond'])} requests a second are unserved"
        less = first["unservedPerSecond"] - last["unservedPerSecond"]
        if enough:
            lack += f"; to serve them, {count(len(enough['moved']), 'other service')} would have to move"
        elif less > SMALL:
            lack += f"; {count(len(last['moved']), 'other service')} moved would serve {rate(less)} of them"
        sentences.append(lack if enough or less > SMALL else f"{lack}, and no plan was found that serves more")
    else:
        sentences.append(f"with no other service moved, GPUs cost {money(first['resourceCost'])} an hour")
        saves = last["savesPerHour"]
        if last["moved"] and saves > SMALL:
            sentences.append(f"with {count(len(last['moved']), 'other service')} moved, they cost {money(saves)} less")
        else:
            sentences.append("no plan was found that costs less by moving others")
    return sentences


def list_distinct(points: Sequence[MovePointWire]) -> list[MovePointWire]:
    """Returns each plan of the curve once."""
    return [
        point
        for before, point in zip((None, *points), points, strict=False)
        if before is None or (point["moved"], point["changes"]) != (before["moved"], before["changes"])
    ]


def find_few(points: Sequence[MovePointWire]) -> MovePointWire:
    """Returns the plan that moves few others, if it serves as much as the best; else the first that does."""
    best = points[-1]["unservedPerSecond"]
    enough = [point for point in points if point["unservedPerSecond"] <= best + SMALL]
    return next((point for point in enough if point["most"] == FEW_OTHERS), enough[0])
