"""Asks Kubernetes whose a token is, where agents run as pods; otherwise its client is never loaded."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from cli import exits
from cli.exits import Failed

if TYPE_CHECKING:
    from app.settings import Settings
    from app.world.service_accounts import Review, ReviewToken


def choose_review(settings: Settings) -> ReviewToken | None:
    """Returns what reviews a token in the cluster of our pod or kubeconfig; None if no agent runs as a pod."""
    if not settings.kubernetes_agents:
        return None
    from app.world.service_accounts import NAME_LABEL, ReviewFailed
    from clusters.kubeconfigs import ClusterUnreachable, choose_cluster
    from clusters.token_reviews import review_token

    def review(token: str, audience: str) -> Review:
        try:  # at each review: our own token is renewed, too
            config = choose_cluster(settings.kube_context or None, None, os.environ)
            return review_token(config, token, audience, NAME_LABEL)
        except ClusterUnreachable as error:
            raise ReviewFailed(str(error)) from None

    try:
        choose_cluster(settings.kube_context or None, None, os.environ)
    except ClusterUnreachable as error:
        raise Failed(f"GPUWRIGHT_KUBERNETES_AGENTS is set, but {error}", exits.REFUSED) from None
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs every request
    return review
