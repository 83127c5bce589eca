"""All possible states of conversations with live panels, for tests."""

from hypothesis import strategies as st

from proxy.context.history.compaction import Compaction
from proxy.context.panels import PanelMemory, PanelPlace
from proxy.context.panels.board import Board, PanelCost, PanelCosts
from proxy.context.session import LiveState

_DIGESTS = st.sampled_from([bytes([n]) * 16 for n in range(4)])
_TIMES = st.sampled_from([0.0, 1.5, 1_700_000_000.25, 1_800_000_000.0])
_COUNTS = st.integers(0, 5_000)
_IDS = st.sampled_from(["todo", "files", "history_1", "A-b_9"])
_PLACES = st.none() | st.just(PanelPlace(0)) | st.builds(PanelPlace, st.integers(1, 9_000), _DIGESTS)
MEMORIES = st.builds(PanelMemory, _IDS, _DIGESTS, _TIMES, _PLACES, _COUNTS, _TIMES, _COUNTS, _COUNTS, _COUNTS)
_USD = st.sampled_from([0.0, 1e-9, 0.25])
_COSTS = st.builds(
    PanelCosts,
    st.lists(st.builds("{}:{}".format, _IDS, _DIGESTS.map(bytes.hex)), min_size=1, max_size=3).map(tuple),
    st.lists(st.builds(PanelCost, _IDS, _COUNTS, st.booleans(), _USD, _USD), max_size=3).map(tuple),
    st.dictionaries(_IDS, _USD),
)
BOARDS = st.builds(
    Board,
    st.lists(MEMORIES).map(lambda memories: {memory.id: memory for memory in memories}),
    st.dictionaries(_COUNTS, st.tuples(_DIGESTS, _TIMES), max_size=3),
    st.just(True),
    _TIMES,
    st.just(PanelCosts()) | _COSTS,
)
_COMPACTIONS = st.builds(Compaction, _COUNTS, _COUNTS, _DIGESTS, st.text(max_size=20))


@st.composite
def states(draw: st.DrawFn) -> LiveState:
    """The state that earlier requests have left: panels, costs and a compaction. Each may be missing."""
    board = draw(st.just(Board()) | BOARDS)
    charged_s = draw(_TIMES) if board.costs.entries else 0.0
    if draw(st.booleans()):
        return LiveState(board, charged_s)
    return LiveState(board, charged_s, draw(_COMPACTIONS), draw(_TIMES))


STATES = states()
