"""Writes what recordings say about clients of MPS, and about what stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from scripts.gpukit.markup import Found, table


def _termination(step: Found) -> Iterator[str]:
    yield "### One of two clients is terminated\n"
    confirmed = "Confirmed" if step["confirmed"] else "**Not confirmed**"
    yield f"{confirmed} by the daemon; the other one answered {step['batches_of_the_other']} more batches."
    yield f"MPS is {step['mps']}.\n"


def _limits(step: Found) -> Iterator[str]:
    yield "### A client that lifts its own limits\n"
    yield f"Each gets {step['sm_percent']:g} % of {step['of']} multiprocessors, and changes its own environment.\n"
    rows = [(row["kind"], row["sees"], "yes" if row["is_client"] else "no") for row in step["rows"]]
    yield from table(("environment", "sees", "client of MPS"), rows)


def _kill(step: Found) -> Iterator[str]:
    yield "### One of two clients is killed while it computes\n"
    yield f"MPS was {', '.join(step['states'])}. The other copy: {step['other']}. The next copy: {step['next']}.\n"


def _fault(step: Found) -> Iterator[str]:
    yield "### One of two clients writes where it may not\n"
    yield f"The driver said: {step['said']}. MPS was {', '.join(step['states'])}. The other copy: {step['other']};"
    yield "its process ran." if step["other_runs"] else "its process had ended."
    if step["end"]:
        yield f"Its end: {step['end']}."
    yield f"Once both had ended MPS was {', '.join(step['after'])}. The next copy: {step['next']}.\n"


def _hung(step: Found) -> Iterator[str]:
    yield "### One of two clients is stopped while it computes\n"
    yield f"The other copy before: {step['before']}.\n"
    held = ("held_by", "termination", "termination_seconds", "ending_seconds", "free_after_seconds", "used_gib")
    names = ("way", "states", "other", "third", *held, "after", "states_after")
    yield from table(names, ([_join(row.get(name)) for name in names] for row in step["rows"]))


def _outside(step: Found) -> Iterator[str]:
    yield "### A copy outside MPS\n"
    listed, client = ("yes" if step[name] else "no" for name in ("is_listed", "is_client"))
    yield f"It sees {step['sees']} of {step['of']} multiprocessors; NVML lists it: {listed}; client of MPS: {client}."
    yield f"Where it should have limits the agent says: {step['verdict']}."
    yield f"The copy with {step['sm_percent']:g} % before: {step['before']}; beside it: {step['beside']};"
    yield f"after it: {step['after']}. The one outside: {step['outside']}.\n"


def _foreign(step: Found) -> Iterator[str]:
    yield "### MPS of another owner\n"
    yield f"Once theirs has ended our copy: {step['next']}.\n"
    rows = (
        ("their daemon and a client of it", step["we_find"], step["our_start"]),
        ("our daemon and a copy, to them", step["they_find_then"], step["their_start"]),
        ("a process with only the name of a server", step["namesakes"], step["start_beside_one"]),
        ("nothing of others any more", step["we_find_at_the_end"], step["start_at_the_end"]),
    )
    yield from table(("what runs", "processes of others found", "a start"), rows)


def _full(step: Found) -> Iterator[str]:
    yield "### A copy that starts where little memory is free\n"
    names = ("free_gib", "wanted_gib", "verdict")
    yield from table(names, ([row[name] for name in names] for row in step["rows"]))
    yield f"The next copy, once it is free: {step['next']}.\n"


def _join(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


PARTS: Mapping[str, Callable[[Found], Iterator[str]]] = {
    "termination": _termination,
    "outside": _outside,
    "foreign": _foreign,
    "hung": _hung,
    "full": _full,
    "limits": _limits,
    "killed": _kill,
    "fault": _fault,
}
