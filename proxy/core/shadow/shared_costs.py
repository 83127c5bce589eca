"""What several processes together paid and saved for one session."""

from dataclasses import dataclass, field

from msgspec import DecodeError, msgpack

from proxy.core.wire.json_body import Unreadable

_MOST_PROCESSES = 16


@dataclass(slots=True)
class Costs:
    """What requests have cost that other processes sent, and what they would have cost as their clients wrote them:
    the latest sums of each. Of many the oldest are forgotten."""

    by_process: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def sent(self) -> float:
        """All of it."""
        return sum(sent for sent, _ in self.by_process.values())

    @property
    def own(self) -> float:
        """The same, as clients wrote them."""
        return sum(own for _, own in self.by_process.values())

    def packed(self, process: str, sent: float, own: float) -> bytes:
        """With this process's own sums."""
        return msgpack.encode({**self.by_process, process: (sent, own)})

    def adopt(self, blob: bytes, process: str) -> None:
        """Take over what is later. Raises Unreadable."""
        try:
            found = msgpack.decode(blob, type=dict[str, tuple[float, float]])
        except (DecodeError, UnicodeDecodeError) as error:
            raise Unreadable("no sums") from error
        for name, sums in found.items():
            if name != process and sums[1] > self.by_process.get(name, (0.0, 0.0))[1]:
                self.by_process.pop(name, None)
                self.by_process[name] = sums
        while len(self.by_process) > _MOST_PROCESSES:
            del self.by_process[next(iter(self.by_process))]
