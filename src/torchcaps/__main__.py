"""`python -m torchcaps` is `torchcaps`."""

import sys

from torchcaps.apps.cli.main import main

sys.exit(main())
