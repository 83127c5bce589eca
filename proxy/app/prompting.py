"""Turns settings into the rules of composed prompts and of context windows."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import pluggy

from proxy.core.model_patterns import matches
from proxy.core.prompts.terms import Allowed, NamesOf, PromptLayer, PromptRules, PromptTerms, layered, only_itself
from proxy.core.window.profile import WindowRules
from proxy.prompting.composer import Rules
from proxy.prompting.files import PromptFileError
from proxy.settings import ConfigError, PromptLevel, Settings
from proxy.settings.messages import join, nearest, shown
from proxy.tasks import Tasks, cancel, spawn
from proxy.telemetry.metrics import Metrics


def rules_of(settings: Settings, names_of: NamesOf = only_itself) -> Rules:
    """The rules that say which requests get which prompts and which capability profile. ``names_of`` gives the names of
    a model (``ModelTable.spellings``)."""
    prompts, window = settings.stratiform.prompts, settings.stratiform.window
    return Rules(
        PromptRules(
            base=layered(PromptTerms(), _layer(prompts)),
            models=_layers(prompts.models),
            teams=_layers(prompts.teams),
            keys=_layers(prompts.keys),
            names_of=names_of,
        ),
        WindowRules(
            profiles=settings.profiles,
            profile=window.profile,
            models=window.models,
            teams=window.teams,
            keys=window.keys,
            allowed=tuple(window.allowed),
            names_of=names_of,
        ),
    )


def levels_of(settings: Settings) -> Iterator[tuple[str, PromptLevel]]:
    """Every level of the section, with its path."""
    given = settings.stratiform.prompts
    yield "stratiform.prompts", given
    for section, levels in (("models", given.models), ("teams", given.teams), ("keys", given.keys)):
        yield from ((join(f"stratiform.prompts.{section}", name), level) for name, level in levels.items())


def named_prompts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Every place of the configuration that names prompts, with the id or the pattern that it names."""
    for path, level in levels_of(settings):
        yield from ((f"{path}.use[{index}]", pattern) for index, pattern in enumerate(level.use or ()))
        if level.persona:
            yield f"{path}.persona", f"persona:{level.persona}"
    for name, profile in settings.profiles.items():
        if profile.template:
            yield f"stratiform.window.profiles.{name}.template", profile.template


def missing_prompts(settings: Settings, ids: Collection[str]) -> Iterator[str]:
    """A warning for every place of the configuration that names a prompt which is not among ``ids``. Nothing is
    composed for it."""
    for path, pattern in named_prompts(settings):
        if not any(matches(pattern, id_) for id_ in ids):
            close = nearest(pattern, ids) if "*" not in pattern else None
            yield f"{path}: there is no prompt `{shown(pattern)}`" + (f"; did you mean `{close}`?" if close else "")


def _layers(levels: Mapping[str, PromptLevel]) -> dict[str, PromptLayer]:
    return {name: _layer(level) for name, level in levels.items()}


def _layer(level: PromptLevel) -> PromptLayer:
    given = level.allowed
    return PromptLayer(
        use=None if level.use is None else tuple(level.use),
        persona=level.persona,
        profile=level.profile,
        override=level.override,
        tools=level.tools,
        plugins=level.plugins,
        agents=level.agents,
        context=level.context,  # type: ignore[arg-type]  # checked: values that JSON has
        strict=level.strict,
        on_failure=level.on_failure,
        allowed=None
        if given is None
        else Allowed(
            override=given.override,
            extras=given.extras,
            flags=given.flags,
            personas=tuple(given.personas),
            profiles=tuple(given.profiles),
            context=frozenset(given.context),
        ),
    )


if TYPE_CHECKING:
    from proxy.prompting.sources import Registry, Snapshot

_log = logging.getLogger("stratiform")


class LazyRegistry:
    """The prompts in force. Most proxies compose no prompts, so they do not load the template language."""

    def __init__(
        self,
        settings: Settings,
        manager: pluggy.PluginManager,
        metrics: Metrics,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``settings`` are the settings at the start: the folders stay the same until the process ends."""
        self._settings = settings
        self._manager = manager
        self._metrics = metrics
        self._wait = wait
        self._registry: Registry | None = None
        self._tasks: Tasks = set()

    def snapshot(self) -> "Snapshot":
        """The prompts that are in force. The registry was opened before: rules that need it are in force only after
        that."""
        assert self._registry is not None
        return self._registry.snapshot

    async def open(self, settings: Settings, rules: Rules) -> None:
        """Make sure that the prompts which the ``rules`` of these settings compose are read, and that their files are
        watched from then on. Logs a warning for each prompt that the settings name and that does not exist. Raises
        ConfigError."""
        if not rules.may_compose:
            return
        if self._registry is None:
            self._registry = await asyncio.to_thread(self._read)
            spawn(self._registry.watch(self._settings.stratiform.prompts.look_s, self._wait), self._tasks)
        for problem in missing_prompts(settings, [prompt.id for prompt in self.snapshot().prompts]):
            _log.warning("%s", problem)

    def _read(self) -> "Registry":
        # The import takes a tenth of the start time, so only proxies that compose prompts do it.
        from proxy.prompting.sources import Registry, Sources

        folders, is_shipped = self._settings.prompt_folders, self._settings.stratiform.prompts.shipped
        try:
            return Registry(Sources.of(folders, is_shipped=is_shipped, manager=self._manager), self._metrics)
        except PromptFileError as error:
            raise ConfigError([f"stratiform.prompts: {error}"]) from error

    async def aclose(self) -> None:
        """Stop watching the files."""
        await cancel(self._tasks)
