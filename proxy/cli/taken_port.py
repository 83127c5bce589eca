"""Says who listens on a port that is taken, and which port is free.

Linux tells in ``/proc/net/tcp`` which sockets listen, each with its number (inode), and in ``/proc/PID/fd`` which
sockets a process holds (https://www.kernel.org/doc/html/latest/networking/proc_net_tcp.html). A process is named by its
number and its program's name: its arguments may hold secrets. Those of other users, and all on other systems, are not
seen.
"""

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

_PROC = Path("/proc")
_TABLES = ("net/tcp", "net/tcp6")
_LISTENS = "0A"
_NEARBY = 100


def taken(host: str, port: int) -> str:
    """A sentence for an address that is in use."""
    who = next(
        _holders(port), "another program"
    )  # workers share the socket of their parent, which has the lowest number
    free = next((near for near in range(port + 1, min(port + _NEARBY, 65536)) if _is_free(host, near)), None)
    advice = f"`--port {free}` is free, and `--port 0` takes" if free is not None else "`--port 0` takes"
    return f"{host}:{port} is in use by {who}; {advice} any free port"


def _holders(port: int) -> Iterator[str]:
    """The processes of this user that listen on the port, as "python (process 12)"."""
    links = {f"socket:[{inode}]" for inode in _listening(port)}
    for folder in sorted(_PROC.glob("[0-9]*"), key=lambda one: int(one.name)) if links else ():
        with suppress(OSError):  # it ends meanwhile, or belongs to another user
            if any(_target(one) in links for one in (folder / "fd").iterdir()):
                yield f"{(folder / 'comm').read_text().strip()} (process {folder.name})"


def _target(link: Path) -> str:
    with suppress(OSError):
        return str(link.readlink())
    return ""


def _listening(port: int) -> Iterator[str]:
    """The numbers of the sockets that listen on the port."""
    for table in _TABLES:
        with suppress(OSError):
            for line in (_PROC / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _is_free(host: str, port: int) -> bool:
    with suppress(OSError):
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.create_server(where[:2], family=family)):
            return True
    return False
