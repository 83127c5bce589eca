"""The socket that the proxy listens on."""

import re
import socket

import pytest

from proxy.cli.serve import address, listen
from proxy.settings import ConfigError


def test_a_port_that_is_taken_is_said() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert address(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError) as caught:
            listen("127.0.0.1", port)
        (said,) = caught.value.problems
        free = re.fullmatch(rf"stratiform.port: 127.0.0.1:{port} is in use; `--port ([0-9]+)` is free", said)
        assert free is not None
        listen("127.0.0.1", int(free[1])).close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_a_server_listens_on_ipv6() -> None:
    with listen("::1", 0) as listener:
        assert address(listener) == f"http://[::1]:{listener.getsockname()[1]}"
