"""Counts the work of an answer: calls are the same in every run, as seconds are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from cProfile import Profile
from typing import TypeVar

Found = TypeVar("Found")

# By count: the file and the function whose calls are counted. A count whose function has gone is not compared.
COUNTED: Mapping[str, tuple[str, str]] = {
    "judgements": ("solvers/planning/judge/judged_plan.py", "verdict"),
    "columns": ("solvers/planning/bound/master.py", "_columns"),
}
OURS = ("app/", "agents/", "solvers/")


def count_work(act: Callable[[], Found], is_counted: bool = True) -> tuple[Found, dict[str, int]]:
    """Returns what `act` returns, and how often it called functions of the product, and those of COUNTED.

    Counting takes about as long as the work: where seconds are measured nothing is counted.
    """
    if not is_counted:
        return act(), {}
    profile = Profile(builtins=False)
    profile.enable()
    try:
        found = act()
    finally:
        profile.disable()
    counts: Counter[str] = Counter()
    for entry in profile.getstats():
        if isinstance(entry.code, str) or not any(f"/{folder}" in entry.code.co_filename for folder in OURS):
            continue
        counts["calls"] += entry.callcount
        for name, (file, function) in COUNTED.items():
            if entry.code.co_name == function and entry.code.co_filename.endswith(file):
                counts[name] += entry.callcount
    return found, dict(counts)
