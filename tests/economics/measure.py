"""What sessions cost under the planner: replayed in virtual time against the embedded provider, in parallel."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context

from proxy.core.providers import PROFILES
from proxy.core.recognition.pieces import Recogniser
from proxy.core.request.tokens import Encode
from proxy.planning.tokenizers import local_encode
from proxy.plugins import build_plugin_manager, recognisers
from proxy.replay.runner import Setting, counted_once, replay
from proxy.replay.totals import OURS
from tests.economics.sessions import class_of, trace_of

# Rules that differ: markers with a look-back; markers without one, and a life of half an hour; a grid; units that end
# where requests end; a grid behind a long minimum; reads that are free, and nothing that expires.
RULES = ("anthropic", "openai-explicit", "openai", "deepseek", "gemini", "vllm")


@dataclass(frozen=True)
class Job:
    """One session under the rules of one provider."""

    session: str
    rules: str


@dataclass(frozen=True)
class Cost:
    """``share`` is the input cost as a share of no caching. ``kind`` is the class of the session."""

    session: str
    rules: str
    share: float
    kind: str


def cost(job: Job) -> Cost:
    """Replay one session. A surprise of the planner is raised; a broken rule of fidelity or a refusal is an error."""
    trace = trace_of(job.session)
    setting = Setting(profile=PROFILES[job.rules], encode=encode(), recognisers=_recognisers(), baselines={})
    result = replay(trace, setting)
    if result.violations or result.ours.refused:
        raise AssertionError(f"{job}: {result.ours.refused} refused, {result.violations[:3]}")
    return Cost(job.session, job.rules, result.share(OURS), _class_of(job.session))


def costs(jobs: Iterable[Job]) -> Iterator[Cost]:
    """Replay all of them, one process for each core; each cost comes as soon as it is known."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        waiting: list[Future[Cost]] = [pool.submit(cost, job) for job in jobs]
        for done in as_completed(waiting):
            yield done.result()


@lru_cache(maxsize=1)
def encode() -> Encode:
    """The tokenizer. A process counts each text once, whatever the number of replays that hold it."""
    return counted_once(local_encode())


@lru_cache(maxsize=1)
def _recognisers() -> list[Recogniser]:
    return list(recognisers(build_plugin_manager()))


@lru_cache
def _class_of(session: str) -> str:
    return class_of(session, encode())
