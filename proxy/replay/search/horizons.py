"""How far a search looks ahead when it compares states: by several horizons at once, since none is best everywhere.

A state is worth what its entries save in the next requests. Near-sighted weights count only what the next request
reads; far-sighted ones count an entry again for each later reader, although a lost one is written only once more.
"""

HORIZONS = (
    (1.0, 0.0, 0.0, 0.0, 0.0),
    (1.0, 0.5, 0.25, 0.1, 0.0),
    (1.0, 1.0, 0.6, 0.3, 0.1),
    (1.0, 1.0, 1.0, 1.0, 1.0),
)
LOOK_AHEAD = len(HORIZONS[0])
