"""`gpuwright completion`: the completion script of a shell."""

from __future__ import annotations

import argparse
import sys

from cli import exits

EPILOG = """\
Examples:
  source <(gpuwright completion bash)            now; put the line into ~/.bashrc to keep it
  gpuwright completion zsh > "${fpath[1]}/_gpuwright"
  gpuwright completion fish > ~/.config/fish/completions/gpuwright.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    from cli.completion import script  # loads every verb

    sys.stdout.write(script(args.shell))
    return exits.OK
