"""The example in plugins/README.md is a plugin that works."""

import re
from pathlib import Path

import pluggy

from proxy.hookspecs import DEFAULT_PLUGINS, PROJECT, Hooks, build_plugin_manager, recognisers
from proxy.protocol.recognition import MessageKind, PieceKind, recognise_text

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "plugins" / "README.md").read_text("utf-8")


class Plugin:
    """The example's code as a namespace that pluggy can read."""

    def __init__(self, code: str) -> None:
        exec(compile(code, "plugins/README.md", "exec"), self.__dict__)


def test_the_example_recognises_its_own_text_and_leaves_others_alone() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code
    plugin = Plugin(code[1])
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(plugin)
    manager.check_pending()
    found = recognise_text(recognisers(manager), "user", "Notes of this project:\nUse tabs.\n")
    assert found is not None
    assert found.form is MessageKind.CONTEXT
    assert [cut.kind for cut in found.cuts] == [PieceKind.OPENING, PieceKind.DOCUMENT]
    assert recognise_text(recognisers(manager), "user", "My notes of this project:\n") is None


def test_every_default_plugin_is_listed() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ", README, re.MULTILINE)
    assert sorted(listed) == sorted(name.removeprefix("plugins.") for name in DEFAULT_PLUGINS)
    assert build_plugin_manager().hook.register_recognisers()
