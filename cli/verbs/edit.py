"""`gpuwright edit`: change one object in an editor; what was typed is never lost."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.arguments import add_connection_arguments, add_kind_argument, completes
from cli.exits import Failed
from cli.kinds import kind_of, label, object_path
from cli.output import format_yaml, plain, say
from cli.talk.client import ApiClient
from cli.talk.contexts import reason, resolve
from cli.talk.refusals import ServerRefusal
from cli.talk.selection import find

EPILOG = """\
The editor is $VISUAL, else $EDITOR, else vi. What the server refuses is opened again with the reasons on
top; leave the file as it is (or empty) to give up. A change that another user made meanwhile is shown
before it can be overwritten.

Example:
  EDITOR=nano gpuwright edit service shop/search
"""
MARK = "#| "
CHANGED = """\
Another user changed the object meanwhile. Your text is below; the present object follows here.
Change your text and save it to replace the present object."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_kind_argument(parser, "kind, or KIND/NAME")
    completes(parser.add_argument("name", nargs="?", metavar="NAME", help="NAME or TENANT/NAME"), "names")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    word, _, name = args.kind.partition("/")
    kind, name = kind_of(word), args.name or name
    if not name:
        raise Failed(f"edit needs a name; see: gpuwright get {kind.plural}")
    with ApiClient(resolve(args)) as client:
        item = find(client, kind, name)
        descriptor, file = tempfile.mkstemp(prefix=f"{item['metadata']['name']}-", suffix=".yaml")
        os.close(descriptor)
        path = Path(file)
        try:
            code = _edit(client, kind, item, path)
        except BaseException:
            if bare(_read(path)) != format_yaml(writable(item)):
                say(f"your edit is kept in {path}")
            else:
                path.unlink(missing_ok=True)
            raise
    path.unlink(missing_ok=True)
    return code


def _edit(client: ApiClient, kind: Kind, item: dict[str, Any], path: Path) -> int:
    metadata = item["metadata"]
    name = label(kind, metadata.get("tenant"), metadata["name"])
    target = object_path(kind.plural, metadata.get("tenant", ""), metadata["name"])
    text = before = format_yaml(writable(item))
    remarks = [f"{name}, version {metadata['resourceVersion']}. An empty file changes nothing."]
    problem: ServerRefusal | None = None
    while True:
        _write(path, remarks, text)
        call_editor(path)
        text = bare(_read(path))
        if not text or text == before:
            if problem is not None:
                raise Failed(f"{name} is unchanged: {problem.message}", problem.code, problem.particulars)
            print(plain(name), "unchanged")
            return exits.OK
        before = text
        headers = {"If-Match": f'"{item["metadata"]["resourceVersion"]}"'}
        try:
            body = text.encode() + b"\n"
            after = client.send("PUT", target, None, body, "application/yaml", headers).json()
        except ServerRefusal as refusal:
            problem = refusal
            if refusal.status == 412:
                item = client.get(target)
                remarks = [CHANGED, format_yaml(writable(item))]
            elif refusal.code == exits.BAD_INPUT:
                remarks = ["The server refused it:", refusal.message, *refusal.particulars]
            else:
                raise
            continue
        same = after["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]
        print(plain(name), "unchanged" if same else "updated")
        return exits.OK


def writable(item: dict[str, Any]) -> dict[str, Any]:
    """Returns the manifest without what the server adds."""
    metadata = item["metadata"]
    identity = {key: metadata[key] for key in ("name", "tenant", "labels") if metadata.get(key)}
    return {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "metadata": identity,
        "spec": item.get("spec", {}),
    }


def call_editor(path: Path) -> None:
    """Open the user's editor and wait; Failed when it cannot be started or says that it failed."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not chosen and not sys.stdin.isatty():
        raise Failed("there is no terminal for an editor: set EDITOR to a program that needs none, or apply a file")
    command = chosen or "vi"
    try:
        done = subprocess.run([*shlex.split(command), str(path)], check=False)
    except (OSError, ValueError) as error:
        raise Failed(f"cannot start the editor {command!r}: {reason(error)}; set EDITOR") from None
    if done.returncode:
        raise Failed(f"the editor {command!r} ended with {done.returncode}; nothing was changed")


def bare(text: str) -> str:
    """Returns the text without our remarks."""
    return "\n".join(line for line in text.splitlines() if not line.startswith(MARK.strip())).strip()


def _write(path: Path, remarks: Iterable[str], text: str) -> None:
    lines = [MARK + plain(line) for remark in remarks for line in remark.splitlines()]
    path.write_text("\n".join([*lines, text]) + "\n", encoding="utf-8")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"cannot read {path}: {reason(error)}") from None
