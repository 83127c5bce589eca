"""``stratiform`` on a machine whose clock is set by hand: the file ``clock`` beside the configuration says by how many
seconds it is wrong. Only what the proxy takes for the machine's clock is stepped, not the monotonic one."""

import sys
import time
from pathlib import Path
from types import ModuleType

import proxy.clock
from proxy.cli import main


class SteppedTime(ModuleType):
    """The module ``time``, with another time of day."""

    def __init__(self, file: Path) -> None:
        super().__init__("time")
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def time(self) -> float:
        """Unix seconds, by as much off as the file says."""
        try:
            return time.time() + float(self._file.read_text() or 0)
        except FileNotFoundError:
            return time.time()


if __name__ == "__main__":
    clock = Path(sys.argv[sys.argv.index("--config") + 1]).with_name("clock")
    proxy.clock.time = SteppedTime(clock)  # type: ignore[assignment]
    sys.exit(main())
