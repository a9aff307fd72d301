"""The command line: `main` is the program."""

from gatekeeper.cli.root import main

__all__ = ["main"]
