"""`gpuwright completion`: the completion script of a shell, which asks `gpuwright __complete` at each Tab."""

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
BASH = r"""# bash completion of gpuwright; load it with:  source <(gpuwright completion bash)
_gpuwright() {
  local words cword offers
  if declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref -n =: words cword
  else
    words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD
  fi
  offers="$(gpuwright __complete -- "${words[@]:1:cword}" 2>/dev/null | cut -f1)"
  if [[ "$offers" == @files ]]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "${words[cword]}"))
  else
    COMPREPLY=($(compgen -W "$offers" -- "${words[cword]}"))
  fi
}
complete -F _gpuwright gpuwright
"""
ZSH = r"""#compdef gpuwright
# zsh completion of gpuwright; load it with:  source <(gpuwright completion zsh)
_gpuwright() {
  local -a offers
  offers=(${(f)"$(gpuwright __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null | cut -f1)"})
  if [[ "$offers" == @files ]]; then _files; else compadd -- $offers; fi
}
if [[ "${funcstack[1]}" == _gpuwright ]]; then _gpuwright "$@"; else compdef _gpuwright gpuwright; fi
"""
FISH = r"""# fish completion of gpuwright; load it with:  gpuwright completion fish | source
function __gpuwright_offers
  set -l words (commandline -opc) (commandline -ct)
  set -l offers (gpuwright __complete -- $words[2..-1] 2>/dev/null)
  if test "$offers" = @files\t
    __fish_complete_path $words[-1]
  else
    printf '%s\n' $offers
  end
end
complete -c gpuwright -f -a '(__gpuwright_offers)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=tuple(SCRIPTS))


def run(args: argparse.Namespace) -> int:
    sys.stdout.write(SCRIPTS[args.shell])
    return exits.OK
