"""A planner that believes a page, and a provider in this process that behaves otherwise."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.kit.errors import UpstreamRejected
from proxy.kit.modes import Reason
from proxy.planner.plan import Plan
from proxy.planner.shadow import Deviation, Observation, ProviderObservations, missing, tolerance
from proxy.protocol.caches import Bill, PromptPositions
from proxy.protocol.providers import ANTHROPIC, OPENAI, PROFILES, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage, usage_of
from proxy.upstream.embedded.provider import Provider, ProviderReply
from tests.examples import examples
from tests.talk import Body, Talk, assistant, chat, lines, marks_in, sent, system, user

PAGE = replace(ANTHROPIC, min_tokens=1024)
SYSTEM = system(lines(200, "rule"))


@dataclass
class Truth:
    """A client whose planner goes by ``page``, and the provider, which goes by ``rules``; ``is_deaf``: a gateway drops
    markers on the way. The provider sees a request as it is ``shown``."""

    rules: CacheProfile
    page: CacheProfile = PAGE
    is_deaf: bool = False
    shown: Callable[[bytes], bytes] = bytes
    talk: Talk = field(init=False)
    provider: Provider = field(init=False)
    seen: list[str] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.talk = Talk(profile=self.page)
        self.forget()

    def forget(self) -> None:
        """Everything that the provider held is gone."""
        self.provider = Provider(self.rules, bytes_over_four)

    def send(self, *messages: Body, after_s: float = 10.0) -> Plan:
        talk = self.talk
        talk.now += after_s
        plan = talk.plan(chat(*messages))
        body = plan.body.replace(b'"cache_control"', b'"unknown"') if self.is_deaf else plan.body
        reply = self.provider.chat(self.shown(body), "account", talk.now, 5)
        reply.store(talk.now)
        usage = usage_of(orjson.loads(b"".join(reply.chunks)))
        assert usage is not None
        self.usages.append(usage)
        talk.planner.on_accepted(plan, talk.now)
        self.seen.append(talk.planner.on_completed(plan, usage, talk.now).deviation)
        return plan

    def believed(self) -> CacheProfile:
        found = [c.believed(self.page, self.talk.now) for c in self.talk.planner._caches.values()]
        return found[0] if found else self.page


def conversation(turns: int, first: str = "q") -> list[Body]:
    found: list[Body] = [SYSTEM]
    for number in range(turns):
        found += [user(lines(12, f"{first}{number}")), assistant(lines(4, f"a{number}"))]
    return found[:-1]


@pytest.fixture
def observations() -> ProviderObservations:
    return ProviderObservations()


@pytest.mark.parametrize("name", ["anthropic", "openai", "openai-explicit", "deepseek", "kimi", "qwen"])
def test_a_provider_that_keeps_its_word_deviates_in_nothing(name: str) -> None:
    rules = PROFILES[name]
    truth = Truth(rules, rules)
    for turns in range(1, 9):
        truth.send(*conversation(turns), after_s=70)
    assert set(truth.seen) == {Deviation.AS_EXPECTED}
    assert truth.believed() is rules
    assert truth.usages[-1].read > 0


def test_entries_that_are_gone_are_dropped_from_the_shadow() -> None:
    truth = Truth(PAGE)
    truth.send(*conversation(1))
    truth.send(*conversation(2))
    truth.forget()
    truth.send(*conversation(3), after_s=100)
    assert truth.seen[-1] == Deviation.EVICTED
    # The whole prompt was written anew, and is counted on again.
    plan = truth.send(*conversation(4))
    assert truth.seen[-1] == Deviation.AS_EXPECTED
    assert plan.predicted.read > 2000
    assert truth.believed() is PAGE


@pytest.mark.parametrize(
    ("after_s", "kind"), [(5, Deviation.PARTITIONED), (120, Deviation.EVICTED), (270, Deviation.EXPIRED)]
)
def test_a_loss_is_named_by_the_entrys_age(after_s: float, kind: Deviation) -> None:
    truth = Truth(PAGE)
    truth.send(*conversation(1))
    truth.forget()
    truth.send(*conversation(2), after_s=after_s)
    assert truth.seen == [Deviation.AS_EXPECTED, kind]


def test_a_shorter_life_is_learnt_after_three_losses_and_unlearnt() -> None:
    page = replace(PAGE, long_life_s=0.0)
    truth = Truth(replace(page, life_s=150.0), page)
    turns = 1
    truth.send(*conversation(turns))
    for number in range(3):
        for after_s in (60, 240 - 20 * number):
            turns += 1
            truth.send(*conversation(turns), after_s=after_s)
        assert truth.believed().life_s == (300.0 if number < 2 else 200.0)
    plan = truth.send(*conversation(turns + 1), after_s=220)
    assert truth.seen[-1] == Deviation.AS_EXPECTED
    assert plan.predicted.read == 0
    # The provider keeps entries for longer again: what was still there teaches that.
    truth.rules = page
    truth.forget()
    truth.send(*conversation(turns + 2))
    truth.send(*conversation(turns + 3), after_s=250)
    assert truth.seen[-1] == Deviation.MORE_READ
    assert truth.believed() is page


def test_losses_at_any_age_are_no_shorter_life() -> None:
    truth = Truth(PAGE)
    for turns in range(1, 13):
        if turns % 3 == 0:
            truth.forget()
        truth.send(*conversation(turns), after_s=40 + 20 * (turns % 5))
    assert truth.seen.count(Deviation.EVICTED) >= 3
    assert truth.believed() is PAGE


def test_a_higher_minimum_is_learnt_and_tried_again_after_an_hour() -> None:
    truth = Truth(replace(PAGE, min_tokens=4096))
    plans = [truth.send(*conversation(turns)) for turns in range(1, 5)]
    assert truth.usages[-1].prompt < 4096
    assert {plan.reason for plan in plans} == {Reason.MARKED}
    assert truth.seen == [Deviation.HIGHER_MINIMUM] * 4
    assert truth.believed().min_tokens > truth.usages[-1].prompt - 10
    low = truth.send(*conversation(1, "other"))
    assert low.reason is Reason.BELOW_MINIMUM
    assert low.body == low.original
    high = [truth.send(*conversation(turns)) for turns in (12, 13)]
    assert {plan.reason for plan in high} == {Reason.MARKED}
    assert truth.usages[-1].read > 4096
    assert truth.seen[-1] == Deviation.AS_EXPECTED
    assert truth.send(*conversation(2, "other"), after_s=4000).reason is Reason.MARKED


def test_what_the_provider_evidently_lost_is_expected_no_more() -> None:
    truth = Truth(PAGE)
    for turns in (6, 12):
        truth.send(*conversation(turns))
    branch = chat(*conversation(6), assistant("other"), user("more"))
    assert truth.talk.plan(branch).predicted.read > 3_000
    truth.forget()
    truth.send(*conversation(13))
    assert truth.seen[-1] == Deviation.PARTITIONED
    assert truth.talk.plan(branch).predicted.read == 0


def test_markers_that_are_ignored_are_no_longer_sent_and_tried_again() -> None:
    truth = Truth(PAGE, is_deaf=True)
    big = system(lines(900, "rule"))
    turns: list[Body] = [big]
    reasons = []
    for number in range(5):
        turns += [user(f"q{number}")]
        plan = truth.send(*turns)
        turns += [assistant(f"a{number}")]
        reasons.append(plan.reason)
    assert truth.seen == [Deviation.HIGHER_MINIMUM, *[Deviation.MARKERS_IGNORED] * 3, Deviation.AS_EXPECTED]
    assert reasons == [*[Reason.MARKED] * 4, Reason.MARKERS_IGNORED]
    plan = truth.send(*turns, user("more"))
    assert (plan.reason, plan.body) == (Reason.MARKERS_IGNORED, plan.original)
    truth.is_deaf = False
    plan = truth.send(*turns, user("much more"), after_s=700)
    assert marks_in(sent(plan))
    plan = truth.send(*turns, user("much more"), assistant("and"), user("more"))
    assert (plan.reason, truth.usages[-1].read > 5000) == (Reason.MARKED, True)


def hour(turns: int, label: str = "rule") -> list[Body]:
    """A client that asks for an hour."""
    part = {"type": "text", "text": lines(200, label), "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    return [system([part]), *conversation(turns)[1:]]


class Downgrading(Provider):
    """Stores for five minutes what should be kept for an hour."""

    def chat(self, body: bytes, account: str, now: float, output_tokens: int) -> ProviderReply:
        short = body.replace(b',"ttl":"1h"', b"").replace(b', "ttl": "1h"', b"")
        return super().chat(short, account, now, output_tokens)


def test_an_hour_that_is_billed_as_five_minutes_is_believed_to_be_five() -> None:
    truth = Truth(PAGE)
    truth.provider = Downgrading(PAGE, bytes_over_four)
    for number in range(2):
        assert truth.believed() is PAGE
        truth.send(*hour(1, f"rule {number}"))
        assert truth.seen[-1] == Deviation.LIFE_DOWNGRADED
    believed = truth.believed()
    assert (believed.long_life_s, believed.write_long) == (300.0, 1.25)
    # What the client asked for is still what is sent.
    plan = truth.send(*hour(3))
    assert b'"1h"' in plan.body


def test_an_hour_that_is_over_after_five_minutes() -> None:
    truth = Truth(replace(PAGE, long_life_s=300.0))
    for turns in range(1, 4):
        truth.send(*hour(turns), after_s=400)
    assert truth.seen[1:] == [Deviation.LIFE_DOWNGRADED] * 2
    assert truth.believed().long_life_s == 300.0


def test_an_hour_of_which_the_report_says_nothing_is_an_hour(observations: ProviderObservations) -> None:
    bill, usage = Bill(0, 0, 4000, 100), Usage(4100, 10, 0, 4000, 0)
    kinds = {observations.observe(Observation(bill, usage, 4000), PAGE, 1000.0) for _ in range(5)}
    assert kinds == {Deviation.AS_EXPECTED}
    assert observations.profile(PAGE, 1000.0) is PAGE


def test_another_tokeniser_moves_the_minimum(observations: ProviderObservations) -> None:
    bill = Bill(0, 2000, 0, 0)
    kinds = [observations.observe(Observation(bill, Usage(2600, 5, 0, 2600), 2000), PAGE, 1.0) for _ in range(3)]
    assert kinds[0] == Deviation.COUNTED_DIFFERENTLY
    assert kinds[-1] == Deviation.AS_EXPECTED
    assert observations.scale == pytest.approx(1.3)
    assert observations.profile(PAGE, 1.0).min_tokens == pytest.approx(1024 / 1.3, abs=1)


@pytest.mark.parametrize(("short", "kind"), [(150, Deviation.AS_EXPECTED), (250, Deviation.PARTITIONED)])
def test_a_few_tokens_less_than_expected_are_no_loss(
    observations: ProviderObservations, short: int, kind: Deviation
) -> None:
    seen = Observation(Bill(3000, 500, 0, 0, hit=3), Usage(3500, 5, 3000 - short, 500 + short), 3500, age_s=10.0)
    assert observations.observe(replace(seen, life_s=300.0), PAGE, 1.0) == kind


@pytest.mark.parametrize("stored", [Usage(2000, 5, 0, 2000), Usage(2000, 5, 2000)])
def test_what_was_stored_shows_that_longer_prefixes_are_not_too_short(
    observations: ProviderObservations, stored: Usage
) -> None:
    observations.observe(Observation(Bill(stored.read, stored.write, 0, 0), stored, 2000), PAGE, 1.0)
    unstored = Observation(Bill(0, 2500, 0, 0), Usage(2500, 5, writes_told=True), 2500)
    kinds = {observations.observe(unstored, PAGE, 1.0) for _ in range(4)}
    assert Deviation.HIGHER_MINIMUM not in kinds
    assert observations.profile(PAGE, 1.0).min_tokens == PAGE.min_tokens


def test_a_scale_is_bounded(observations: ProviderObservations) -> None:
    for _ in range(9):
        observations.observe(Observation(Bill(0, 0, 0, 1000), Usage(90_000, 5)), OPENAI, 1.0)
    assert observations.scale == 2.0


def test_runs_that_do_not_count_once(observations: ProviderObservations) -> None:
    bill, usage = Bill(5000, 900, 0, 0, hit=3), Usage(5900, 5, 0, 5900)
    far = Observation(bill, usage, 5900, age_s=10.0, life_s=300.0, distance=PAGE.lookback)
    near = replace(far, distance=PAGE.lookback - 1)
    assert ProviderObservations().observe(near, PAGE, 1.0) == Deviation.PARTITIONED
    for collapses in (True, False):
        assert observations.observe(far, PAGE, 1.0) == Deviation.OUT_OF_REACH
        assert observations.profile(PAGE, 1.0).collapses_runs is collapses
    held = replace(far, reported=Usage(5900, 5, 5000, 900))
    assert observations.observe(held, PAGE, 1.0) == Deviation.AS_EXPECTED
    assert observations.profile(PAGE, 1.0).collapses_runs is True


def test_a_grid_that_is_spread_over_machines_has_a_chance(observations: ProviderObservations) -> None:
    hit = Observation(Bill(4096, 0, 0, 900, hit=3), Usage(4996, 5, 4096), age_s=40.0, life_s=600.0)
    miss = replace(hit, reported=Usage(4996, 5, 0))
    kinds = {observations.observe(one, OPENAI, 1.0) for one in (hit, miss, hit, miss, hit, miss)}
    assert kinds == {Deviation.AS_EXPECTED, Deviation.EVICTED}
    assert observations.profile(OPENAI, 1.0).hit_chance == 0.5


def test_what_is_missing_is_what_was_not_read_and_not_written() -> None:
    prompt = PromptPositions(
        b"s", tuple(b"%d" % n for n in range(5)), (1000, 2000, 3000, 4000, 5000), tuple(range(5)), {3: "5m"}
    )
    bill = Bill(3000, 1000, 0, 1000, hit=2)
    assert missing(prompt, bill, Usage(5000, 1, 1000, 3000)) == [1, 2]
    assert missing(prompt, bill, Usage(5000, 1, 1000, 0)) == [1, 2, 3, 4]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(85, 6_000), st.lists(st.integers(0, 2), min_size=4, max_size=6))
def test_images_that_are_counted_otherwise_are_neither_lost_nor_more(image_tokens: int, images: list[int]) -> None:
    """As many images in each question, behind the first one; the provider counts each as a text of
    ``image_tokens``."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}

    def shown(body: bytes) -> bytes:
        found = orjson.loads(body)
        for part in (part for one in found["messages"] if isinstance(one["content"], list) for part in one["content"]):
            if part.pop("image_url", None):
                part |= {"type": "text", "text": "abc " * image_tokens}
        return orjson.dumps(found)

    truth, talk = Truth(PAGE, shown=shown), [SYSTEM]
    for number, count in enumerate([1, *images]):
        talk += [user([{"type": "text", "text": lines(9, f"q{number}")}, *[image] * count])]
        truth.send(*talk, after_s=60.0)
        talk += [assistant(f"a{number}")]
    assert set(truth.seen) <= {Deviation.AS_EXPECTED, Deviation.COUNTED_DIFFERENTLY}


def test_a_refusal_teaches_nothing() -> None:
    truth = Truth(replace(PAGE, max_marks=0))
    with pytest.raises(UpstreamRejected):
        truth.send(*conversation(2))
    assert truth.believed() is PAGE


@settings(max_examples=examples(3_000))
@given(
    st.tuples(*[st.integers(1, 60_000)] * 3),
    st.floats(0.67, 1.5),
    st.floats(0.6, 1.6),
    st.floats(0.0, 1.0),
    st.booleans(),
    st.booleans(),
)
def test_what_is_stored_tells_where_system_messages_are_put_however_unevenly_tokens_are_counted(
    sizes: tuple[int, int, int], uneven: float, scale: float, held: float, hoists: bool, is_believed: bool
) -> None:
    """A head, system messages behind it with the last marker, and turns between them. Whatever share of what it has
    stored the provider has ``held`` until then, a few reports tell."""
    head, notices, turns = sizes
    front, everything = head + notices, sum(sizes)
    page = replace(PAGE, hoists_system=is_believed)
    stored, shown = front * scale, turns * scale * uneven
    total, cached = stored + shown, stored if hoists else stored + shown
    reported = Usage(round(total), 1, round(cached * held), round(cached * (1 - held)), writes_told=True)
    bills = [Bill(0, everything, 0, 0), Bill(0, front, 0, turns)]
    here, there = reversed(bills) if is_believed else bills
    observations = ProviderObservations()
    for _ in range(3):
        observations.observe(Observation(here, reported, marked=everything, elsewhere=there), page, 100.0)
    is_apart = turns * total / everything > 2 * tolerance(reported, page)
    is_long = everything * total >= everything * page.min_tokens or reported.read + reported.write
    assert observations.profile(page, 100.0).hoists_system is (hoists if is_apart and is_long else is_believed)


@given(st.lists(st.booleans(), max_size=6))
def test_keys_are_given_up_after_two_refusals_unless_one_was_ever_accepted(answers: list[bool]) -> None:
    observations = ProviderObservations()
    for number, is_accepted in enumerate(answers, 1):
        observations.key_was(accepted=is_accepted)
        seen = answers[:number]
        assert observations.takes_keys is (any(seen) or len(seen) < 2)


@given(st.integers(0, 5), st.sampled_from([1500, 8190, 8191, 8192, 8193, 20_000]))
def test_a_larger_minimum_is_learnt_from_three_prefixes_that_no_minimum_explains_otherwise(
    reports: int, tokens: int
) -> None:
    """No page names a minimum of more than 8192 tokens."""
    observations = ProviderObservations()
    seen = Observation(Bill(0, tokens, 0, 0), Usage(tokens, 5, writes_told=True), tokens)
    for _ in range(reports):
        observations.observe(seen, PAGE, 1000.0)
    is_learnt = reports >= 3 and tokens < 8192
    assert observations.profile(PAGE, 1000.0).min_tokens == (tokens + 1 if is_learnt else PAGE.min_tokens)
