"""The provider fails in every way that a socket allows; each call costs what the provider billed, and no more."""

from tests.drill.clients import Clients, Kind, Told, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.redis_outages import RESERVATION, WIDE_USD
from tests.drill.upstream import HANG_S, LARGE_BYTES
from tests.drill.world import World
from tests.e2e.fleet import MODEL
from tests.services import closed_port

TEAMS = {"red": WIDE_USD}
GONE = "gpt-gone"


def _faults(world: World, findings: Findings) -> None:
    """Each fault, as JSON and as a stream, four calls of each; then one whole call."""
    store = f"sqlite:{world.folder / 'spend.sqlite'}"
    config = world.config(store, TEAMS)
    entry = config["model_list"][0]
    closed = world.stack.enter_context(closed_port())
    gone = {**entry["litellm_params"], "api_base": f"http://127.0.0.1:{closed}/v1"}
    config["model_list"].append({**entry, "model_name": GONE, "litellm_params": gone})
    told: list[Told] = []
    with world.proxy(config) as proxy:

        def call(fault: str, *, is_stream: bool, model: str = MODEL, calls: int = 2) -> list[Told]:
            kind = Kind(fault, model=model, is_stream=is_stream)
            with Clients(proxy.url, {"red": 2}, kind, calls=calls) as clients:
                clients.wait()
            told.extend(clients.told)
            return clients.told

        for form, is_stream in (("JSON", False), ("stream", True)):
            refused = call("", is_stream=is_stream, model=GONE)
            _expect(findings, f"connection refused, {form}: 502", refused, {502})
            reset = call("reset", is_stream=is_stream)
            _expect(findings, f"reset before the first byte, {form}: 502", reset, {502})
            failed = call("error", is_stream=is_stream)
            _expect(findings, f"500, {form}: 500", failed, {500})
            cut = call("cut", is_stream=is_stream)
            whole = [one for one in cut if one.is_complete]
            findings.expect(f"cut in mid-answer, {form}: no client takes it for whole", statuses(cut), not whole)
            large = call("large", is_stream=is_stream, calls=1)
            is_right = all(one.is_complete for one in large)
            findings.expect(f"{LARGE_BYTES // 1_000_000} MB, {form}: whole", statuses(large), is_right)
            hung = call("hang", is_stream=is_stream, calls=1)
            slowest = max(one.ended - one.began for one in hung)
            is_right = all(one.is_complete for one in hung)
            findings.expect(f"the line stays open behind the end, {form}: whole", _texts(hung), is_right)
            findings.expect(
                f"the line stays open behind the end, {form}: over before the line is", f"{slowest:.1f} s",
                slowest < HANG_S / 2,
            )  # fmt: skip
            _expect(findings, f"afterwards, {form}: 200", call("", is_stream=is_stream), {200})
    found = compare(world.upstream.served(), told, read(store, TEAMS), ceiling=RESERVATION)
    findings.settle(found)


def _expect(findings: Findings, goal: str, told: list[Told], wanted: set[int]) -> None:
    findings.expect(goal, statuses(told), {one.status for one in told} == wanted)


def _texts(told: list[Told]) -> str:
    broken = [one.text for one in told if not one.is_complete]
    return f"{len(told) - len(broken)} of {len(told)}" + "".join(f" {text[-80:]!r}" for text in broken[:1])


DRILLS = (
    Drill(
        "upstream-faults", "connections refused and reset, answers cut off, 20 MB long, or without an end", _faults,
        is_short=True,
    ),
)  # fmt: skip
