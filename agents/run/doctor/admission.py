"""Checks the node's allow-list, and what the programs that it admits could reach."""

from __future__ import annotations

from collections.abc import Iterator

from agents.admission.filling import entry_names, find_unusable
from agents.admission.metadata import answering, why_no_rule
from agents.admission.reading import read_allow_list, user_fault
from agents.run.doctor.findings import DoctorFinding, fail, ok, warn
from agents.run.opening import AgentOptions
from agents.templates.strict_file import FileRefused


def allow_list(options: AgentOptions) -> Iterator[DoctorFinding]:
    """Checks that the allow-list can be used, and says what it admits."""
    path, runtime = options.allow_list, options.kind
    if path is None:
        yield ok("allow-list", "none: images and commands of users are not started")
        return
    try:
        found = read_allow_list(path, options.folder, options.models)
    except FileRefused as error:
        for fault in error.faults:
            yield fail("allow-list", fault, "Correct it; until then nothing is admitted (docs/own-servers.md).")
        return
    if fault := user_fault(found, under_mps=options.device != "cores"):
        yield fail("allow-list", f"{path}: {fault}", "Until then nothing is admitted (docs/own-servers.md).")
        return
    startable = found.startable_by(runtime)
    others = len(found.entries) - len(startable)
    left_out = f"; {others} others are not for --runtime {runtime}" if others else ""
    yield ok("allow-list", f"admits {entry_names(startable)}{left_out}")
    for unusable in find_unusable(found, runtime):
        yield fail("allow-list", f"{path}: {unusable}", "Until then this node refuses what needs it.")
    why_not = why_no_rule(runtime, found.user)
    if why_not and (reached := answering()):
        advice = "Block it for copies: docs/own-servers.md has the rules."
        shown = f"{reached[0]} answers here, and may hand this machine's credentials to copies: {why_not}"
        yield warn("metadata", shown, advice)
