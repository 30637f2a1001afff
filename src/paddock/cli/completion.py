"""`paddock completion`: a script for the shell."""

import sys
from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"]) -> int:
    """Print a completion script for your shell.

    bash: paddock completion bash > ~/.local/share/bash-completion/completions/paddock
    zsh: paddock completion zsh > a folder of your fpath, as _paddock
    fish: paddock completion fish > ~/.config/fish/completions/paddock.fish
    """
    from paddock.cli.app import build

    sys.stdout.write(build().generate_completion(shell=shell))
    return 0
