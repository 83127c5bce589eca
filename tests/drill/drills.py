"""All drills, in the order in which they run."""

from tests.drill import files, kills, overload, redis_emptied, redis_outages, restarts, upstreams
from tests.drill.drill import Drill

DRILLS: tuple[Drill, ...] = (
    *redis_outages.DRILLS, *redis_emptied.DRILLS, *overload.DRILLS, *kills.DRILLS, *files.DRILLS, *upstreams.DRILLS,
    *restarts.DRILLS,
)  # fmt: skip
