"""Applies Profiles, and then predicts again those that were predicted from what is declared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.manifests.drafts import describe_draft
from app.manifests.model import Kind
from cli import exits
from cli.exits import Failed
from cli.output import plain, say
from cli.talk.client import ApiClient


def apply_profiles(client: ApiClient, profiles: Sequence[Mapping[str, Any]], remedy: str, *, as_draft: bool) -> None:
    """Applies Profiles, and again those that were predicted: they follow from all that is measured by now.

    Refuses all of them where one is a draft that is not accepted as such; `remedy` says what would make it surer.
    """
    drafts = [f"{made['metadata']['name']}: {words}" for made in profiles if (words := describe_draft(made["spec"]))]
    if drafts and not as_draft:
        some = "1 Profile is a draft" if len(drafts) == 1 else f"{len(drafts)} Profiles are drafts"
        accept = "--as-draft applies it as it is, and plans count on its spread"
        raise Failed(f"{some}, and nothing is applied: {remedy}; {accept}", exits.NO, particulars=drafts)
    _apply(client, profiles)
    if len(profiles) == 1:
        say(f"profile {profiles[0]['metadata']['name']} is applied")
    else:
        say(f"{len(profiles)} profiles are applied")
    for words in drafts:
        say(plain(words))
    _predict_again(client)


def _predict_again(client: ApiClient) -> None:
    from app.campaigns.predicted_profiles import predict_profiles  # with numpy
    from app.manifests.model import Manifest

    declared = [
        Manifest(kind, "", item["metadata"]["name"], item["spec"], item["metadata"].get("labels", {}))
        for kind, path in ((Kind.GPU_TYPE, "/api/v1/gputypes"), (Kind.PROFILE, "/api/v1/profiles"))
        for page in client.pages(path, {})
        for item in page["items"]
    ]
    found = predict_profiles(declared, only_again=True)
    if found is None:
        return
    before = {each.name: each.spec for each in declared if each.kind is Kind.PROFILE}
    changed = [made for made in found.manifests if made["spec"] != before[made["metadata"]["name"]]]
    if changed:
        _apply(client, changed)
        names = ", ".join(made["metadata"]["name"] for made in changed)
        say(plain(f"predicted again from {found.pairs} Profiles, and applied: {names}"))


def _apply(client: ApiClient, profiles: Sequence[Mapping[str, Any]]) -> None:
    client.send("POST", "/api/v1/apply", body=json.dumps(profiles).encode())
