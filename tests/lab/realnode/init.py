"""The first process of a node's namespaces: `init.py READY FOLDER…`; hides the machine's folders and reaps orphans.

It ends with its parent, by the kernel, and everything in its namespaces ends with it: containers, shims, mounts.
Standard library only; started with `-I -S`.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Put an empty folder over each FOLDER, create READY, and reap until the end."""
    ready, *hidden = sys.argv[1:]
    for folder in hidden:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "node", folder], check=True)
    # The first process of a namespace gets only the signals that it handles, and shims send it plenty of this one.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    Path(ready).touch()
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            signal.sigtimedwait({signal.SIGCHLD}, 1.0)


if __name__ == "__main__":
    main()
