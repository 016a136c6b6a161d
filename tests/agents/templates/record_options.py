"""Prints which options a model server takes, and what values. It is run by hand, where the server is installed.

    python record_options.py vllm > options/vllm-0.33.0.txt
    python record_options.py sglang > options/sglang-0.5.23.txt
    tritonserver --help | python record_options.py triton 2.51.0 > options/triton-2.51.0.txt

vLLM and SGLang are imported and their parsers read; neither needs a GPU for that. One line is one option with its other
names. After it stands nothing for a flag, else `integer`, `number`, `boolean`, `value` or {the, choices}; with `...` it
takes several. What an option is for is not written down.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any


def main(server: str, version: str = "") -> None:
    lines = {"vllm": _vllm, "sglang": _sglang, "triton": _triton}[server]
    version = version or importlib.import_module(server).__version__
    found = sorted(set(lines()))
    today = datetime.datetime.now(tz=datetime.UTC).date()
    sys.stdout.write("\n".join([f"# {server} {version}, recorded on {today}", *found, ""]))


def _vllm() -> Iterator[str]:
    platform = importlib.import_module("vllm.platforms").current_platform
    platform.device_type = platform.device_type or "cuda"  # without a GPU it is empty, and defaults cannot be made
    arguments = importlib.import_module("vllm.entrypoints.common.cli_args")
    kind = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    return _options(arguments.make_arg_parser(kind()))


def _sglang() -> Iterator[str]:
    parser = argparse.ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return _options(parser)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        names = sorted(
            action.option_strings, key=lambda name: (not name.startswith("--"), action.option_strings.index(name))
        )
        yield f"{'|'.join(names) or action.dest} {_takes(action)}".rstrip()


def _takes(action: argparse.Action) -> str:
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return ""
    if action.choices is not None:
        takes = "{" + ", ".join(str(choice) for choice in action.choices if choice is not None) + "}"
    elif _accepts(action.type, "7") and not any(_accepts(action.type, other) for other in ("word", "[7]")):
        takes = "number" if _accepts(action.type, "0.5") else "integer"
    else:
        takes = "value"
    return takes + ("..." if action.nargs in ("*", "+") or isinstance(action.nargs, int) else "")


def _accepts(convert: Callable[[str], Any] | str | None, text: str) -> bool:
    if not callable(convert):
        return True
    try:
        convert(text)
    except (TypeError, ValueError, argparse.ArgumentTypeError):
        return False
    return True


def _triton() -> Iterator[str]:
    kinds = {"integer": "integer", "float": "number", "boolean": "boolean"}
    for name, takes in re.findall(r"^  (--[-a-z0-9]+)(?: <(.*)>)?$", sys.stdin.read(), re.MULTILINE):
        yield f"{name} {kinds.get(takes, 'value') if takes else ''}".rstrip()


if __name__ == "__main__":
    main(*sys.argv[1:])
