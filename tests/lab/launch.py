"""Become another program that dies with the process that started it: `launch.py PARENT_PID PROGRAM [ARGUMENT…]`.

A step of its own, as the kernel's "kill me when my parent is gone" must be set between fork and exec, and running
Python between the two in a process with threads can deadlock. Standard library only; started with `-I -S`.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Arm the signal, make sure that the parent was still there then, and exec."""
    parent, program = int(sys.argv[1]), sys.argv[2]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL)) != 0:
        sys.exit(f"cannot tie {program} to the life of its parent: {os.strerror(ctypes.get_errno())}")
    # Race: a parent that died before the line above sends no signal any more; we are someone else's child then.
    if os.getppid() != parent:
        sys.exit(f"the parent {parent} is gone: not starting {program}")
    # Python ignores SIGPIPE, and an ignored signal stays ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program, sys.argv[2:])


if __name__ == "__main__":
    main()
