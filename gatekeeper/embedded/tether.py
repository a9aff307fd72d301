"""`python -m gatekeeper.embedded.tether PARENT SIGNAL COMMAND …` becomes COMMAND, with SIGNAL once PARENT dies.

So a stack that is killed without a chance to clean up takes its children along. Only Linux knows this;
elsewhere the command runs untethered.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, number, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before it could be watched
            sys.exit(1)
        signal.signal(number, signal.SIG_DFL)  # shells have it ignored by what they start in the background
    os.execvp(command[0], command)  # noqa: S606 - becoming the command is the purpose


if __name__ == "__main__":
    main()
