"""Asks an API server whose a token is, by a TokenReview, and its nodes, with the label that gives one another name."""

from __future__ import annotations

import httpx2
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from clusters.addresses import show_message, show_origin
from clusters.kubeconfigs import ClusterUnreachable, connect
from clusters.objects import KubeObject, name_of, read_field, read_list, read_mapping, read_text
from clusters.plugin_tokens import TokenFailed

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
NODES = "/api/v1/nodes"
LABELS_ALONE = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
NAMES_ALONE = "application/json;as=Table;g=meta.k8s.io;v=v1"  # without objects: 1,000 nodes are some 200 KB
ANSWER_SECONDS = 3.0  # three times; the agent waits for ten


def review_token(config: SingleConfig, token: str, audience: str, name_label: str) -> KubeObject:
    """Returns the status of a review of the token, which should be meant for the audience.

    With `nodeNames`: what the label says of each node; empty where it has none.
    """
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    server = show_origin(config.cluster.server)
    try:
        with connect(config) as client:
            client.timeout = httpx2.Timeout(ANSWER_SECONDS)
            response = client.post(REVIEWS, json={**kind, "spec": {"token": token, "audiences": [audience]}})
            status = _read_answer(server, response, 201, "TokenReview", "create tokenreviews")
            if read_field(status, "status", "authenticated") is not True:
                return read_mapping(status, "status")
            response = client.get(NODES, params={"includeObject": "None"}, headers={"Accept": NAMES_ALONE})
            table = _read_answer(server, response, 200, "Table", "list nodes")
            asked = {"labelSelector": name_label}
            response = client.get(NODES, params=asked, headers={"Accept": LABELS_ALONE})
            found = _read_answer(server, response, 200, "PartialObjectMetadataList", "list nodes")
    except TokenFailed as failed:
        raise ClusterUnreachable(f"this server has no token for {server}: {failed.reason}") from None
    except httpx2.LocalProtocolError:  # its text repeats the token
        raise ClusterUnreachable(f"no header can carry this server's token for {server}") from None
    except httpx2.HTTPError as error:
        raise ClusterUnreachable(f"{server} did not answer: {type(error).__name__}") from None
    except (ConfigError, OSError, ValueError):
        raise ClusterUnreachable(f"the file with this server's token for {server} cannot be read") from None
    names = {str(cells[0]): "" for row in read_list(table, "rows") if (cells := read_list(row, "cells"))}
    labels = {name_of(node): read_text(node, "metadata", "labels", name_label) for node in read_list(found, "items")}
    return {**read_mapping(status, "status"), "nodeNames": names | labels}


def _read_answer(server: str, response: httpx2.Response, status: int, kind: str, right: str) -> KubeObject:
    try:
        answer = read_mapping({"answer": response.json()}, "answer")
    except (ValueError, RecursionError):
        answer = {}
    if response.status_code == status and read_text(answer, "kind") == kind:
        return answer
    reason = show_message(read_text(answer, "message") or response.reason_phrase)
    remedy = f"; this server's account needs the right to {right}" if response.status_code == 403 else ""
    raise ClusterUnreachable(f"{server} answered {response.status_code} {reason}{remedy}")
