"""`gpuwright schema`: the JSON Schema of manifests, for editors."""

from __future__ import annotations

import argparse
import json

from cli import exits
from cli.arguments import completes

EPILOG = """\
An editor with a language server for YAML completes fields and marks mistakes once a file begins with
`# yaml-language-server: $schema=gpuwright.schema.json`. What depends on other objects, `gpuwright validate` checks.

Examples:
  gpuwright schema > gpuwright.schema.json
  gpuwright schema service
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    completes(parser.add_argument("kind", nargs="?", metavar="KIND", help="of this kind alone"), "kinds")


def run(args: argparse.Namespace) -> int:
    from app.manifests.document_schema import write_schema
    from app.manifests.model import Kind
    from cli.kinds import kind_of

    wanted = [kind_of(args.kind)] if args.kind else list(Kind)
    print(json.dumps(write_schema(wanted), indent=2, ensure_ascii=False))
    return exits.OK
