"""`python -m gatekeeper.cli`."""

from gatekeeper.cli import main

main(prog_name="gatekeeper")
