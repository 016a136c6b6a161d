"""`gpuwright validate`: check files without a server, with the server's own code."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cli import exits, sources
from cli.arguments import add_file_arguments
from cli.exits import Failed
from cli.output import plain, say

if TYPE_CHECKING:
    from app.manifests.faults import ManifestFault
    from app.manifests.model import Manifest

EPILOG = """\
Exit code 2 and a line for each fault when something is wrong.

Examples:
  gpuwright validate -f fleet/
  gpuwright validate -f shop.yaml --partial      it refers to models and GPU types that are declared elsewhere
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    parser.add_argument("--partial", action="store_true", help="allow references to objects that are not in the files")


def run(args: argparse.Namespace) -> int:
    from app.manifests.drafts import describe_draft
    from app.manifests.model import Kind

    files = sources.read(args.files, recursive=args.recursive)
    manifests, faults = judge_files(files, partial=args.partial)
    if faults:
        some = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        lines = [*map(str, faults)]
        if not args.partial and any("there is no " in line for line in lines):
            lines.append("objects that only a server has are not checked here: --partial leaves references out")
        raise Failed(f"{some} in {_files(files)}", particulars=lines)
    for manifest in manifests:
        if manifest.kind is Kind.PROFILE and (words := describe_draft(manifest.spec)):
            say(plain(f"warning: {manifest.key}: {words}"))
    count = len(manifests)
    print(f"{count} {'manifest' if count == 1 else 'manifests'} in {_files(files)}: no fault")
    return exits.OK


def judge_files(files: list[tuple[str, str]], *, partial: bool) -> tuple[list[Manifest], list[ManifestFault]]:
    """Returns the manifests and their faults."""
    from app.manifests.faults import ManifestsRefused
    from app.manifests.offline import Input, load
    from app.manifests.reader import read
    from app.manifests.validate import validate

    try:
        if not partial:
            return list(load(Input(name, text.encode()) for name, text in files).manifests.values()), []
        documents = [found for name, text in files for found in read(text.encode(), "yaml", source=name)]
    except ManifestsRefused as refused:
        return [], refused.faults
    manifests, faults = validate(documents, offline=True)
    return manifests, faults


def _files(files: list[tuple[str, str]]) -> str:
    return files[0][0] if len(files) == 1 else f"{len(files)} files"
