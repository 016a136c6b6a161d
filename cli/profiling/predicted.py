"""Predicts Profiles of variants on GPU types where they were never measured."""

from __future__ import annotations

import argparse
from typing import Any

from app.manifests.drafts import write_error
from cli import declared
from cli.exits import Failed
from cli.output import format_yaml, plain, print_data, say


def predict(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the Profiles that the files' Profiles predict, and returns them."""
    from app.campaigns.predicted_profiles import FEWEST_PAIRS, predict_profiles

    args.recursive = False
    found = predict_profiles(list(declared.world(args).manifests.values()))
    if found is None:
        raise Failed(f"too few Profiles to learn from: at least {FEWEST_PAIRS} of a variant on a GPU type are needed")
    answer = {"profiles": found.manifests, "pairs": found.pairs, "left_out_error": found.error}
    if print_data(answer, "json" if args.json else "text"):
        return found.manifests
    if not found.manifests:
        say("each variant has a Profile on each GPU type of the files: there is nothing to predict")
    else:
        print("\n---\n".join(format_yaml(profile) for profile in found.manifests))
        learned = f"{len(found.manifests)} Profiles learned from {found.pairs}"
        say(plain(f"{learned}; a pair left out is missed by {write_error(found.error)}"))
    return found.manifests
