"""Agents that run as pods: whose token joins as which node, by what Kubernetes says of the token."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from agents.contract.node_names import name_node
from app.manifests.faults import escape

AUDIENCE = "gpuwright"  # so that no other service's token joins, and ours opens nothing in the cluster
FORM = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)  # of a JSON Web Token
BOUND = "authentication.kubernetes.io/"
# Gives a node another name here. NodeRestriction lets no kubelet set labels that begin so, not even its own node's.
NAME_LABEL = "node-restriction.kubernetes.io/gpuwright-node"
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)

Review = Mapping[str, object]
# Of a token for an audience: the status of a TokenReview, and under nodeNames what the label says of each node.
ReviewToken = Callable[[str, str], Review]


class ReviewFailed(Exception):
    """Nothing is known about the token: Kubernetes did not answer; the message says why."""


def find_refusal(review: Review, account: str, node: str) -> tuple[str, str]:
    """Returns why a reviewed token does not admit this node, as slug and detail; two empty texts where it does."""
    if review.get("authenticated") is not True:
        reason = escape(str(review.get("error") or "it is unknown or has expired"))
        return "unauthorized", f"Kubernetes does not accept this token for the audience {AUDIENCE}: {reason}"
    if AUDIENCE not in _list(review.get("audiences")):
        return "unauthorized", f"Kubernetes does not say that this token is meant for the audience {AUDIENCE}"
    wanted = "system:serviceaccount:" + account.replace("/", ":")
    if _user(review).get("username") != wanted:
        return "forbidden", f"this token is of {name_holder(review)}; agents are {wanted}"
    bound = _read_bound(review, "node-name")
    if not bound:
        needs = "mount it into the agent's pod as a projected volume, in Kubernetes 1.30 or newer"
        return "forbidden", f"this token is bound to no pod on a node: {needs}"
    if name_node(bound) != node:
        return "forbidden", f"this token is of a pod on node {escape(bound)}, not on {node}"
    named = _read_names(review)
    if named.get(bound) and not NAME.fullmatch(named[bound]):
        return (
            "forbidden",
            f"the label {NAME_LABEL} of node {escape(bound)} is {escape(named[bound])}, and no DNS label",
        )
    return ("forbidden", taken) if (taken := _find_taken(bound, named)) else ("", "")


def _find_taken(bound: str, named: Mapping[str, str]) -> str:
    """Returns why another node of the cluster has the name of this one: else it would end that one's tokens.

    A node that has its own name keeps it, whatever labels say of others: who may label one node, or mistypes its
    label, takes no name and keeps no node away. Of a name that two labels give, neither node joins.
    """
    name = named.get(bound) or name_node(bound)
    others = sorted(other for other, label in named.items() if other != bound and (label or name_node(other)) == name)
    if not others:
        return ""
    other, is_labelled = others[0], bool(named.get(bound))
    owner = next((other for other in others if not named[other]), "")
    if is_labelled and owner:
        return (
            f"the label {NAME_LABEL} of node {escape(bound)} is {name}, which is the own name of node {escape(owner)}:"
            " give the label another value, or remove it"
        )
    if is_labelled:
        return (
            f"the label {NAME_LABEL} is {name} on node {escape(bound)} and on node {escape(other)}:"
            " change or remove it on one of them"
        )
    if owner:
        return (
            f"node {escape(bound)} and node {escape(owner)} are both called {name} here:"
            f" give one of them another name by the label {NAME_LABEL}"
        )
    if bound in named:
        return ""
    return (
        f"the label {NAME_LABEL} of node {escape(other)} gives that one this name, and the cluster has no node"
        f" {escape(bound)}"
    )


def name_admitted(review: Review) -> str:
    """Returns what the node is called here: as its label says, else as Kubernetes calls it."""
    bound = _read_bound(review, "node-name")
    return _read_names(review).get(bound) or name_node(bound)


def name_holder(review: Review) -> str:
    """Returns the account that a reviewed token is of, with its pod."""
    pod = _read_bound(review, "pod-name")
    return escape(str(_user(review).get("username"))) + (f"/{pod}" if pod else "")


def _read_bound(review: Review, what: str) -> str:
    """Returns the name of the object to which the token is bound; empty if there is none."""
    extra = _user(review).get("extra")
    found = _list(extra.get(BOUND + what)) if isinstance(extra, Mapping) else ()
    return str(found[0]) if len(found) == 1 else ""


def _read_names(review: Review) -> Mapping[str, str]:
    named = review.get("nodeNames")
    return {str(node): str(name) for node, name in named.items()} if isinstance(named, Mapping) else {}


def _user(review: Review) -> Mapping[str, object]:
    user = review.get("user")
    return user if isinstance(user, Mapping) else {}


def _list(found: object) -> Sequence[object]:
    return found if isinstance(found, list) else ()
