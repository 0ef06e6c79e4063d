"""`python -m torchcaps` is `torchcaps`."""

import sys

from torchcaps.cli import main

sys.exit(main())
