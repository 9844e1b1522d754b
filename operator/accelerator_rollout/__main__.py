"""The command line, as `python -m accelerator_rollout`; what it can do stands in `cli.main`."""

import sys

from accelerator_rollout.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
