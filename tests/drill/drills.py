"""All drills, in the order in which they run."""

from tests.drill import redis_outages
from tests.drill.drill import Drill

DRILLS: tuple[Drill, ...] = (*redis_outages.DRILLS,)
