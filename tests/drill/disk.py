"""A disk that can be full: a small one of its own where this user may mount one, else a bound on the size of files."""

import os
import resource
import subprocess
from pathlib import Path

from tests.drill.world import World
from tests.e2e.fleet import Fleet

_SIZE = "8m"
_CHUNK = 1 << 16


class Disk:
    """A folder whose disk can be filled, and have room again."""

    def __init__(self, world: World) -> None:
        self.folder = world.folder / "disk"
        self.folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(self.folder)]
        self.is_mounted = os.geteuid() == 0 and not subprocess.run(command, capture_output=True, check=False).returncode
        if self.is_mounted:
            world.stack.callback(subprocess.run, ["umount", "--lazy", str(self.folder)], check=False)

    def fill(self, proxy: Fleet | None = None) -> None:
        """From now on the proxy writes no file here. Without a disk of its own: this proxy, and no file anywhere."""
        if not self.is_mounted:
            _bound(proxy, 0)
            return
        with self._filler.open("wb", buffering=0) as filler:
            size = _CHUNK
            while size:
                try:
                    filler.write(b"\0" * size)
                except OSError:
                    size //= 2

    def free(self, proxy: Fleet | None = None) -> None:
        """There is room again."""
        if self.is_mounted:
            self._filler.unlink()
        else:
            _bound(proxy, resource.RLIM_INFINITY)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"


def _bound(proxy: Fleet | None, size: int) -> None:
    assert proxy is not None, "only a process that runs has bounds"
    for pid in (proxy.process.pid, *proxy.workers()):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
