"""What the nodes of a Kubernetes cluster are called here."""

from __future__ import annotations


def name_node(cluster_node: str) -> str:
    """Returns the name of a node of Kubernetes as a DNS label: dots, as EKS has them, become hyphens."""
    return cluster_node.replace(".", "-")
