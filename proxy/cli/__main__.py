"""``python -m proxy.cli``: the ``stratiform`` command."""

import sys

from proxy.cli import main

sys.exit(main())
