"""``python -m looplift``: the command line."""

import sys

from looplift.cli import main

if __name__ == "__main__":
    sys.exit(main())
