"""`python -m gatekeeper`."""

from gatekeeper.cli import main

main(prog_name="gatekeeper")
