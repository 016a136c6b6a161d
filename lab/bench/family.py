"""Writes problems of a family as files of manifests, for `gpuwright solve -f` or another planner."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from cli.bench.plan_arguments import Say, add_size_arguments, families
from cli.exits import Failed
from cli.talk.contexts import reason

SHOWN = ("family", "seed", "file", "mb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_size_arguments(parser, seeds=1)
    parser.add_argument("--out", metavar="DIR", default=".", help="where the files go; default: here")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Writes a file for each family and seed."""
    from benchmarks.families import family
    from benchmarks.manifests import manifests

    folder = Path(args.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"the folder --out {args.out} cannot be created: {reason(error)}") from None
    rows = []
    for name in families(args.family):
        for seed in range(args.seeds):
            file = folder / f"family-{name.lower()}-{args.gpus}-{args.services}-{seed}.json"
            text = json.dumps(manifests(family(name, args.gpus, args.services, seed)))
            file.write_text(text)
            say(f"written: {file}")
            rows.append({"family": name, "seed": seed, "file": str(file), "mb": round(len(text) / 1e6, 2)})
    return {"rows": rows}
