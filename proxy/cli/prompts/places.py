"""What ``OLD`` and ``NEW`` of ``stratiform prompts diff`` name: a folder, a configuration, or one of both in Git."""

import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from proxy.cli.prompts.setup import PromptSetup, setup_at
from proxy.settings import ConfigError

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
    """Write a folder of a revision, or for a file the whole revision, into ``folder``; where the path is then. The
    path counts from the working directory. Raises ConfigError."""
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
    """What may be written; links that lead out of the repository are left out."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _git(folder: Path, *arguments: str) -> bytes:
    """What Git prints. Raises ConfigError."""
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
