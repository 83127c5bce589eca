"""The setup of the ``prompts`` commands: a configuration with its folders, or folders alone, and files with the
contexts of requests."""

import argparse
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TypeVar

import orjson

from proxy.access.directory import DEFAULT_TEAM
from proxy.app import declared, factories, prompting
from proxy.cli.admin_client import DEFAULT_CONFIG, config_or_default
from proxy.cli.output import add_json, fail
from proxy.core.prompts.prompt import ROOTS, Json, Prompt
from proxy.core.prompts.terms import Allowed, PromptRules, PromptTerms
from proxy.core.value import dataclass, field
from proxy.plugins import build_plugin_manager
from proxy.prompting.files import FileState, PromptFileError, markdown_files, read_file
from proxy.prompting.rules import Rules
from proxy.prompting.sources import Snapshot, Sources, texts_of
from proxy.settings import ConfigError, Settings, load

T = TypeVar("T")

GivenContext = Mapping[str, Mapping[str, Json]]
"""A context in the form of a file: an object for some of the roots."""

ANY = "*"
"""The name that stands for any model without a rule."""
_ALL = Rules(
    PromptRules(
        base=PromptTerms(
            use=(ANY,),
            tools=True,
            plugins=True,
            agents=True,
            allowed=Allowed(True, True, True, personas=(ANY,), profiles=(ANY,), context=frozenset(ROOTS)),
        )
    )
)


@dataclass(frozen=True, slots=True)
class PromptSetup:
    """``folders`` are in the order in which their prompts are registered, after the shipped ones if ``has_shipped``.
    ``models`` and ``keys`` are the names that a configuration knows. ``settings`` is None if there are only folders;
    then every prompt is composed, and clients may ask for everything."""

    folders: tuple[Path, ...] = ()
    has_shipped: bool = False
    rules: Rules = _ALL
    models: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    """The team of each key, by the key's id."""
    settings: Settings | None = None

    def snapshot(self) -> Snapshot:
        """The prompts as a proxy would use them. Raises ConfigError."""
        try:
            return self._sources().snapshot()
        except PromptFileError as error:
            raise ConfigError([str(error)]) from error

    def readable(self) -> tuple[list[Prompt], list[str], Mapping[str, str]]:
        """All prompts that can be read, even if two have the same id, the problems with the others, and the fragments.
        Raises ConfigError if a plugin registers something that is not a prompt."""
        sources, problems = self._sources(), list[str]()
        folders = [_read(partial(markdown_files, folder), list[FileState](), problems) for folder in sources.folders]
        found = [_read(partial(read_file, state.path), None, problems) for states in folders for state in states]
        fragments = _read(partial(texts_of, sources.fragments or {}), dict[str, str](), problems)
        return [*filter(None, found), *sources.prompts], problems, fragments

    def team_of(self, key_id: str) -> str:
        return self.keys.get(key_id, DEFAULT_TEAM)

    def _sources(self) -> Sources:
        try:
            return Sources.of(self.folders, is_shipped=self.has_shipped, manager=build_plugin_manager())
        except PromptFileError as error:
            raise ConfigError([str(error)]) from error


def _read(read: Callable[[], T], instead: T, problems: list[str]) -> T:
    """The value that is read. A failure is added to ``problems``, and ``instead`` is returned."""
    try:
        return read()
    except PromptFileError as error:
        problems.append(str(error))
        return instead


def add_setup(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where prompts are read, and how the command prints")
    group.add_argument(
        "--config", type=Path, metavar="FILE",
        help=f"the configuration that says whose requests get which prompts (default: {DEFAULT_CONFIG})",
    )  # fmt: skip
    group.add_argument(
        "--folder", type=Path, action="append", default=[], metavar="FOLDER",
        help="read the prompts of this folder, in the place of the folders of the configuration; may be repeated",
    )  # fmt: skip
    add_json(group)


def setup_of(arguments: argparse.Namespace) -> PromptSetup:
    if arguments.folder:
        return setup_at(arguments.config, arguments.folder)
    return setup_at(config_or_default(arguments.config, "use --config FILE or --folder FOLDER"))


def setup_at(config: Path | None, folders: Sequence[Path] = ()) -> PromptSetup:
    """The setup of a configuration, of folders, or of both. With both, the rules come from the configuration, and the
    prompts from the folders. Raises ConfigError."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError([f"{folder}: is no folder"])
    if config is None:
        return PromptSetup(tuple(folders))
    settings = load(config)
    table = factories.model_table(settings, factories.price_map(settings))
    return PromptSetup(
        tuple(folders or settings.prompt_folders),
        settings.stratiform.prompts.shipped,
        prompting.rules_of(settings, table.spellings),
        models=tuple(dict.fromkeys([*table.names(), *table.patterns()])),
        keys={key.id: key.team for key in declared.declared(settings).keys},
        settings=settings,
    )


def add_contexts(parser: argparse.ArgumentParser, several: str) -> None:
    """Add the option that names files with contexts. ``several`` says how more than one file is used."""
    parser.add_argument(
        "--context", type=Path, action="append", default=[], metavar="FILE",
        help=f"a JSON object with what a request brings, by root ({', '.join(ROOTS)}); may be repeated: {several}",
    )  # fmt: skip


def read_context(file: Path) -> GivenContext:
    """The context of a file. Ends the command if the file does not hold a context."""
    try:
        content = orjson.loads(file.read_bytes())
    except OSError as error:
        fail(f"{file}: cannot be read: {error.strerror}")
    except orjson.JSONDecodeError as error:
        fail(f"{file}: is no JSON: {error}")
    if not isinstance(content, dict) or not all(isinstance(values, dict) for values in content.values()):
        fail(f"{file}: must be an object that has an object for each root")
    for root in content:
        if root not in ROOTS:
            fail(f"{file}: '{root}' is no root of the context; there are {', '.join(ROOTS)}")
    return content


HELP = "a folder of prompts, a configuration, or REVISION:PATH for either of them at a revision of Git"
_GIT_S = 60.0


@contextmanager
def opened(place: str, config: Path | None) -> Iterator[PromptSetup]:
    """The setup at a place, for as long as the block lasts. The rules for a folder are those of ``config``. Raises
    ConfigError."""
    path = Path(place)
    if path.exists():
        yield _setup(path, config)
        return
    revision, colon, inner = place.partition(":")
    if not colon or not inner:
        raise ConfigError([f"{place}: there is no such file or folder; {HELP}"])
    with TemporaryDirectory(prefix="stratiform-") as folder:
        yield _setup(_checked_out(revision, inner, Path(folder)), config)


def _setup(path: Path, config: Path | None) -> PromptSetup:
    return setup_at(config, [path]) if path.is_dir() else setup_at(path)


def _checked_out(revision: str, path: str, folder: Path) -> Path:
    """Write a folder of a revision, or for a file the whole revision, into ``folder``. Returns the new place of the
    path. The path is relative to the working directory. Raises ConfigError."""
    if revision.startswith("-"):
        raise ConfigError([f"{revision}: is no revision"])
    top = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel").decode().strip())
    try:
        inside = PurePosixPath((Path.cwd() / path).resolve().relative_to(top.resolve()).as_posix())
    except ValueError:
        raise ConfigError([f"{revision}:{path}: lies outside of the repository {top}"]) from None
    is_folder = _git(top, "cat-file", "-t", f"{revision}:{inside}").strip() == b"tree"
    content = _git(top, "archive", "--format=tar", revision, *([str(inside)] if is_folder else []))
    with tarfile.open(fileobj=BytesIO(content)) as archive:
        archive.extractall(folder, filter=_safe)
    return folder / inside


def _safe(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """A filter for files that may be written. Links that lead out of the repository are left out."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _git(folder: Path, *arguments: str) -> bytes:
    """The output of Git. Raises ConfigError."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, timeout=_GIT_S, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError([f"git {arguments[0]} does not work here ({type(error).__name__})"]) from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigError([f"git {arguments[0]}: {lines[-1] if lines else 'failed'}"])
    return done.stdout
