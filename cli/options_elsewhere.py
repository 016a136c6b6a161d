"""What was meant by words that a verb does not take: its own, or what other command lines call so."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

SHORTEST_BEGINNING = 4  # of an option, dashes included
ELSEWHERE = {  # the option without which the hint does not fit a verb, and the hint
    "-n": ("--tenant", "what Kubernetes calls a namespace is a tenant here: --tenant NAME"),
    "--namespace": ("--tenant", "what Kubernetes calls a namespace is a tenant here: --tenant NAME"),
    "--all-namespaces": ("-A", "all tenants: -A"),
    "--sort-by": ("-A", "rows are sorted by name; sort those of -o json, as by jq"),
    "--watch": ("--server", "changes are shown by: gpuwright watch"),
    "-w": ("--server", "changes are shown by: gpuwright watch"),
    "--filename": ("--file", "files are given by: -f FILE"),
    "--service": ("--chart", "services stand apart with: --by service"),
    "--without-node": ("--lose-node", "did you mean --lose-node?"),
}

VERBS_ELSEWHERE = {  # what other command lines do by a verb of ours, and what does it here
    "gpuwright top": "it takes no words, and shows all GPUs and services; more of a node: gpuwright describe node NAME",
    "gpuwright scale": "copies of a service follow its load, from spec.minInstances on: gpuwright edit service NAME; "
    "replicas in Kubernetes: kubectl scale",
}


def explain_words(program: str, words: Sequence[str]) -> str:
    """Returns what words after a verb may have meant that it does not take; empty: nothing."""
    hint = VERBS_ELSEWHERE.get(program, "")
    return f"; {hint}" if hint and words and not words[0].startswith("-") else ""


def explain_option(words: Sequence[str], known: Collection[str]) -> str:
    """Returns what the first unknown option of the words may have meant, to be added to a message; empty: nothing."""
    unknown = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
    if not unknown:
        return f"; did you mean --against {words[0]}?" if "--against" in known and words[0].isdecimal() else ""
    needed, hint = ELSEWHERE.get(unknown, ("", ""))
    if needed in known:
        return f"; {hint}"
    beginnings = [name for name in known if len(unknown) >= SHORTEST_BEGINNING and name.startswith(unknown)]
    near = beginnings or get_close_matches(unknown, [name for name in known if name.startswith("--")], n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""
