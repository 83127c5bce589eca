"""What sessions cost under the planner: replayed in virtual time against the embedded provider, in parallel."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from multiprocessing import get_context

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.lab.replay import OURS, Setting, counted_once, replay
from proxy.lab.replay.command import assembler_maker
from proxy.planner.observation import Again
from proxy.planner.plan import PlannerOptions
from proxy.protocol.providers import PROFILES
from proxy.protocol.recognition import Recogniser
from proxy.protocol.request.tokens import Encode
from proxy.services import local_encode
from proxy.services.context_assembler import ContextAssembler
from tests.economics.features import without
from tests.economics.sessions import class_of, length_of, sessions, trace_of

# Rules that differ: markers with a look-back; markers without one, and a life of half an hour; a grid; units that end
# where requests end; a grid behind a long minimum; reads that are free, and nothing that expires.
RULES = ("anthropic", "openai-explicit", "openai", "deepseek", "gemini", "vllm")


@dataclass(frozen=True)
class Job:
    """One session under the rules of one provider; ``without`` names a feature of the planner that is switched off, and
    ``again`` says when the operator's texts of earlier turns are sent again."""

    session: str
    rules: str
    without: str = ""
    again: Again = Again.BY_PRICE


@dataclass(frozen=True)
class Cost:
    """``share`` is the input cost as a share of no caching. ``kind`` is the class of the session."""

    session: str
    rules: str
    share: float
    kind: str


@dataclass(frozen=True)
class Measured:
    """What came of a job; ``sent`` is a digest of all bytes that were sent."""

    job: Job
    cost: Cost
    sent: bytes


def measure(job: Job) -> Measured:
    """Replay one session. A surprise of the planner is raised; a broken rule of fidelity or a refusal is an error."""
    session, profile, sent = sessions()[job.session], PROFILES[job.rules], sha256()
    setting = Setting(
        profile=profile,
        served=session.served(profile),
        encode=encode(),
        recognisers=_recognisers(),
        mode=session.mode,
        baselines={},
        assembler=_assembler(),
        inset=session.inset,
        options=PlannerOptions(texts_again=job.again),
        on_sent=lambda step, plan: sent.update(plan.body),
    )
    with without(job.without) if job.without else nullcontext():
        result = replay(trace_of(job.session), setting)
    if wrong := [*result.violations, *result.surprises, *["refused"] * result.ours.refused]:
        raise AssertionError(f"{job}: {wrong[:3]}")
    cost = Cost(job.session, job.rules, result.share(OURS), _class_of(job.session))
    return Measured(job, cost, sent.digest())


def cost(session: str, rules: str) -> Cost:
    """What one session costs."""
    return measure(Job(session, rules)).cost


def measured(jobs: Sequence[Job]) -> list[Measured]:
    """Replay all of them, one process for each core, with a progress bar; the longest first, so that all cores end
    together."""
    found = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with shown, ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        task = shown.add_task("", total=len(jobs))
        for done in as_completed(pool.submit(measure, job) for job in sorted(jobs, key=_length, reverse=True)):
            found.append(done.result())
            shown.update(task, advance=1, description=f"{found[-1].job.session} {found[-1].job.without}")
    return sorted(found, key=lambda one: jobs.index(one.job))


@lru_cache(maxsize=1)
def encode() -> Encode:
    """The tokenizer. A process counts each text once, whatever the number of replays that hold it."""
    return counted_once(local_encode())


@lru_cache(maxsize=1)
def _assembler() -> Callable[[], ContextAssembler]:
    return assembler_maker(build_plugin_manager(), encode(), "economic")


@lru_cache(maxsize=1)
def _recognisers() -> list[Recogniser]:
    return list(recognisers(build_plugin_manager()))


def _length(job: Job) -> int:
    return length_of(job.session)


@lru_cache
def _class_of(session: str) -> str:
    return class_of(session, encode())
