"""``stratiform``, and ``python -m proxy``: the command, interrupted in the same way while its modules still load."""

import sys


def main() -> int:
    """Run the command of this process. Returns its exit status."""
    try:
        from proxy.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
