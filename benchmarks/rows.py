"""Turns the messages of a timed plan into a row of figures, and rows into medians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

TimedLines: TypeAlias = Sequence[Mapping[str, Any]]  # the messages of benchmarks/timed.py
Row: TypeAlias = dict[str, Any]

MARKS_SECONDS = (1, 3, 10, 60)
FIGURES = (
    "first_seconds", "complete_seconds", "first_gap", "seconds", "cpu_seconds", "cost", "bound", "gap", "peak_mb",
    "saving",
)  # fmt: skip
SPREADS = (
    ("gap", "gap", 100, "%"),
    ("first_seconds", "first plan after", 1, "s"),
    ("complete_seconds", "first complete plan after", 1, "s"),
)
WORST = tuple(name for name, *_ in SPREADS)
PROVED_SHARE = 1e-6  # of a cost: a plan that costs no more than this beyond its bound is proved


def row(lines: TimedLines, peak_mb: float, allowed_seconds: float) -> Row:
    """Returns the figures of a plan. The first plan's gap is against the best bound, known in the end."""
    better = [line for line in lines if line["what"] == "better"]
    planned = next(line for line in lines if line["what"] == "planned")
    judged = next(line for line in lines if line["what"] == "judged")
    seconds, cost, bound, unserved = planned["at"], judged["cost"], judged["bound"], judged["unserved_cost"]
    first = better[0] if better else {"at": seconds, "cost": cost}
    final = gap(cost, bound, unserved)
    marks = {
        f"gap_{mark}s": final if seconds <= mark <= allowed_seconds + 0.5 else gap_at(better, mark)
        for mark in MARKS_SECONDS
        if mark <= allowed_seconds + 0.5
    }
    return {
        "first_seconds": first["at"],
        "complete_seconds": complete_seconds(better, seconds, judged["unserved"]),
        "first_gap": gap(first["cost"], bound),
        "seconds": seconds,
        "cpu_seconds": planned["cpu_seconds"],
        "cost": cost,
        "bound": bound,
        "gap": final,
        "proved": is_proved(judged),
        "peak_mb": round(peak_mb, 1),
        **marks,
        "unserved": judged["unserved"],
        "instances": judged["instances"],
        "gpus_used": judged["gpus_used"],
        "work": judged["work"],
        "method": judged["method"],
        "violations": judged["violations"],
    }


def complete_seconds(better: TimedLines, seconds: float, unserved: int) -> float | None:
    """Returns when the first plan that leaves nothing unserved was found; None if none was."""
    found = next((float(line["at"]) for line in better if line["serves_all"]), None)
    return seconds if found is None and not unserved else found


def is_proved(judged: Mapping[str, Any]) -> bool:
    """Returns whether a plan breaks no rule and costs what its bound says that every plan costs at least."""
    cost, bound = judged["cost"], judged["bound"]
    return not judged["violations"] and bound is not None and cost - bound <= PROVED_SHARE * max(1.0, cost)


def bill_blind(found: Row, blind: Row) -> Row:
    """Returns what a plan costs that was made as if each GPU were paid by itself, and what part of it ours saves."""
    is_served = not any(row["unserved"] or row["violations"] for row in (found, blind))
    saving = 1 - found["cost"] / blind["cost"] if is_served and blind["cost"] > 0 else None
    return {"blind_cost": blind["cost"], "blind_unserved": blind["unserved"], "saving": saving} | {
        "blind_violations": blind["violations"]
    }


def gap(cost: float, bound: float | None, unserved: float = 0.0) -> float | None:
    """Returns (cost - bound) / (bound - unserved cost); None if that has no meaning."""
    if bound is None or not bound - unserved > 0:
        return None
    return max(0.0, cost - bound) / (bound - unserved)


def gap_at(better: TimedLines, seconds: float) -> float | None:
    """Returns the gap that was known at this moment; None before the first."""
    known = [line for line in better if line["at"] <= seconds]
    return gap(known[-1]["cost"], known[-1]["bound"]) if known else None


def medians(rows: Sequence[Row]) -> Row:
    """Returns the medians, and the worst of some figures, of the rows that serve everything.

    Of all rows it counts those that serve everything, those that are proved and those that break a rule.
    """
    counted = [row for row in rows if not row["unserved"] and not row["violations"]]
    found: Row = {
        "counted": len(counted),
        "of": len(rows),
        "proved": sum(row["proved"] for row in rows),
        "with_violations": sum(bool(row["violations"] or row.get("blind_violations")) for row in rows),
    }
    for name in (*FIGURES, *(f"gap_{mark}s" for mark in MARKS_SECONDS)):
        values = [row[name] for row in counted if row.get(name) is not None]
        if values:
            found[name] = median(values)
            found |= {f"worst_{name}": max(values)} if name in WORST else {}
    return found


def summary(found: Row) -> str:
    """Returns in words what `medians` found."""
    parts = [f"proved {found['proved']} of {found['of']}", f"{found['counted']} serve everything"]
    for name, what, scale, unit in SPREADS:
        if name in found:
            middle, worst = scale * found[name], scale * found[f"worst_{name}"]
            parts.append(f"{what} {middle:.3g} {unit} in the median, {worst:.3g} {unit} at most")
    if "saving" in found:
        parts.append(f"saved {100 * found['saving']:.3g} % in the median against plans that do not know of nodes")
    return "; ".join((*parts, f"{found['with_violations']} break a rule"))
