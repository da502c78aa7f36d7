"""The verdict: the limit by its name, the evidence in words, and what changes would give."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
import re
from dataclasses import replace
from typing import Any

import pytest

from stoker.observe.facts import Facts
from stoker.observe.stats import ExecutorStats, Histogram, LoopStats, Moment, OriginStats, SlowSample, Stats, StepStats, merge
from stoker.observe.verdict import Verdict, verdict
from stoker.observe.what_if import Costs, costs_of, predict

from ..loader.runs import numbers

#: 1,000 samples per second for 10 seconds
SAMPLES, SECONDS = 10_000, 10.0


def step(
    name: str, kind: str = "native", *, cpu: float = 0.0, lock: float = 0.0, queued: float = 0.0, wait: float = 0.0
) -> StepStats:
    """A step with its seconds of each kind; 100 kB for each sample come in, and go out."""
    wall, nbytes = cpu + lock + queued + wait, 100_000 * SAMPLES
    return StepStats(name, kind, SAMPLES, wall, cpu, lock, queued, wait, nbytes, nbytes)


def stats(*steps: StepStats, waited: float = 9.0, loop: float = 1.0, workers: int = 2, cores: int = 2, **changes: Any) -> Stats:
    """A run whose steps took so many seconds of workers; the loop waited and worked so many."""
    cpu_s = sum(each.cpu_s for each in steps)
    known: dict[str, Any] = {
        "batches": 101, "samples": SAMPLES, "bytes": 101_000_000, "elapsed_s": SECONDS, "waited_s": waited,
        "task_s": sum(each.wall_s for each in steps), "cpu_s": cpu_s, "process_s": cpu_s, "worked": SAMPLES,
        "workers": workers, "cores": cores, "steps": steps, "loop": LoopStats(101, loop),
    }  # fmt: skip
    return Stats(**{**known, **changes})


READ, IMAGE = step("read", "read", cpu=1.0), step("image('jpg')", cpu=18.0)
DECODING = stats(READ, IMAGE)
PHOTOS = Facts(samples=100_000, stored="files", seekless=True, prefix=("read",), memory_left=18_000_000_000, budget=2_000_000_000)
TINY = replace(PHOTOS, budget=6_000_000)
PROCESSES = ExecutorStats("processes", 2, 1)


def histogram(**counts: int) -> Histogram:
    """Samples by what they took, as in ``ms1=900, ms100=10``."""
    buckets = {Histogram.bucket(float(name[2:]) * 1e-3): count for name, count in counts.items()}
    return Histogram(tuple(buckets.get(number, 0) for number in range(max(buckets) + 1)))


CASES: dict[str, tuple[Stats, Facts, str, str]] = {
    "the model": (
        stats(READ, step("image('jpg')", cpu=4.0), waited=0.1, loop=9.9), PHOTOS, "loop", "Fast enough.*25%.*4.0 times",
    ),
    "a loop that is slowed": (
        replace(
            stats(READ, step("image('jpg')", cpu=4.0), waited=0.1, workers=16), loop=LoopStats(100, 9.9, 50, 5.2, 50, 4.0)
        ),
        PHOTOS, "slowed", r"30% longer.*2 cores and the interpreter with 16 threads.*`threads=1`.* 1\.2x",
    ),
    "a loop that is slowed, and waits for the lock when it asks": (
        replace(
            stats(READ, step("image('jpg')", cpu=4.0), waited=1.5, workers=16),
            loop=LoopStats(100, 8.5, 50, 5.2, 50, 4.0), history=(Moment(5.0, 5.0, 50, 5000, 0.7, 2.0, 16, ready=9),),
        ),
        PHOTOS, "slowed", "30% longer",
    ),
    "a loop that is not slowed": (
        replace(stats(READ, step("image('jpg')", cpu=4.0), waited=0.1), loop=LoopStats(100, 9.9, 50, 4.1, 50, 4.0)),
        PHOTOS, "loop", "Fast enough",
    ),
    "decoding": (
        DECODING, PHOTOS, "decode",
        r"1\.9 of 2 cores.*image\('jpg'\) \(95%\).*waited 90%.*more cores would give.*seek index",
    ),
    "decoding of page-cached shards by too many threads": (
        stats(step("read", "read", cpu=2.0, queued=10.0), step("image('jpg')", cpu=17.0, queued=50.0), workers=8),
        replace(PHOTOS, stored="shards", chosen=True), "decode", "`threads=2` would do as much as these 8",
    ),
    "decoding by too many processes": (
        stats(READ, IMAGE, step("map f", queued=50.0), workers=8, process_s=0.5, executor=ExecutorStats("processes", 8, 1)),
        replace(PHOTOS, chosen=True, seekless=False), "decode", "`processes=2, threads=1` would do as much as these 8",
    ),
    "one core of sixteen": (
        stats(READ, step("image('jpg')", cpu=8.9), cores=1, workers=1), replace(PHOTOS, machine_cores=16), "decode",
        "this machine has 16, and this process may use 1",
    ),
    "Pillow on all cores": (
        stats(READ, IMAGE, pillow=9_000), PHOTOS, "decode", "JPEGs decode.*: Pillow decoded 9,000 of 10,000 samples",
    ),
    "Pillow and its lock": (
        stats(READ, step("image('png')", cpu=60.0, lock=90.0), workers=16, cores=16, pillow=10_000), PHOTOS, "python",
        "interpreter lock.*Pillow decoded 10,000 of 10,000.*`processes=16, threads=1` would give",
    ),
    "a function that holds the lock": (
        stats(READ, step("map f", "function", cpu=9.0, lock=9.5)), PHOTOS, "python",
        r"map f is 90% of.*compute only 51% of their time.*`processes=2, threads=1` would give 2\.0x.*map f made cheaper",
    ),
    "a function that holds the lock, and has no core now and then": (
        stats(READ, step("map f", "function", cpu=7.0, lock=1.0, queued=10.0, wait=0.9)), PHOTOS, "python", "map f",
    ),
    "a function that lets go of the lock, and has no core now and then": (
        stats(READ, step("map f", "function", cpu=7.0, lock=0.1, queued=10.0, wait=1.8)), PHOTOS, "cores", "a core 50%",
    ),
    "a function over batches that holds the lock": (
        stats(READ, step("map_batch f", "function", cpu=9.0, lock=9.5)), PHOTOS, "python", "map_batch f made cheaper would",
    ),
    "functions that draw": (
        stats(READ, step("map f", "function", cpu=8.0, wait=9.5), draws=500), PHOTOS, "python",
        "draw from the random generators.*one runs",
    ),
    "a function on all cores": (
        stats(READ, step("map f", "function", cpu=18.0), executor=PROCESSES, process_s=0.5), PHOTOS, "function", r"map f \(95%\)",
    ),
    "a training loop in Python": (
        stats(READ, step("image('jpg')", cpu=3.0, lock=15.0), cores=16), PHOTOS, "interpreter",
        "elsewhere in this program.*`processes=1`",
    ),
    "arrays beside a training loop in Python": (
        stats(step("read", "read", cpu=2.0, wait=16.0), cores=16), replace(PHOTOS, stored="memory"), "interpreter", "for it 89%",
    ),
    "page-cached files beside a training loop in Python": (
        stats(step("read", "read", cpu=1.0, wait=12.0), step("image('jpg')", cpu=3.0, lock=3.0), cores=16, process_s=13.0),
        PHOTOS, "interpreter", "elsewhere in this program",
    ),
    "a function that waits": (
        stats(READ, step("map f", "function", cpu=0.5, wait=18.0), cores=16), PHOTOS, "waiting",
        r"waiting in map f takes 92%.*`threads=8` would give 4\.0x",
    ),
    "storage": (
        stats(step("read", "read", cpu=1.0, wait=16.0), step("image('jpg')", cpu=2.5)), PHOTOS, "storage",
        r"waits for it 82% .*1\.6 ms per sample, 100\.0 MB/s.*`threads=8` would give 4\.0x.*next epoch, with all 10\.0 GB",
    ),
    "a server that answers late": (
        stats(step("read", "read", cpu=1.0, wait=16.0), step("image('jpg')", cpu=2.5)),
        replace(PHOTOS, stored="network", requests=10_000, answer_s=0.1, receive_s=0.004),
        "server", r"an answer starts after 100\.0 ms and takes 4\.0 ms.*`shuffle\(window=\.\.\.\)` reads many samples",
    ),
    "a network, where a request is made for each sample": (
        stats(step("read", "read", cpu=1.0, wait=16.0), step("image('jpg')", cpu=2.5)),
        replace(PHOTOS, stored="network", requests=10_000, answer_s=0.01, receive_s=0.1, memory_for_blocks=800_000_000),
        "network", '`memory="800MB"` reads many samples with one request',
    ),
    "a network": (
        stats(step("read", "read", cpu=1.0, wait=16.0), step("image('jpg')", cpu=2.5)), replace(PHOTOS, stored="network"),
        "network", "The network",
    ),
    "too few threads": (
        stats(READ, step("image('jpg')", cpu=8.9), workers=1, cores=8), PHOTOS, "workers",
        r"1 thread for 8 cores.*`threads=8` would give 8\.0x",
    ),
    "no workers": (
        stats(READ, step("image('jpg')", cpu=7.9), workers=1, executor=ExecutorStats("inline", 0, 0)), PHOTOS, "workers",
        r"There are no workers.*`threads=2` would give 2\.2x",
    ),
    "other programs": (
        stats(READ, step("image('jpg')", cpu=4.0, queued=14.0), cores=2), PHOTOS, "cores",
        r"core 74% .*used 0\.5 of 2 cores\..*All cores for this program would give 4\.0x",
    ),
    "a small memory budget": (
        stats(READ, step("image('jpg')", cpu=4.0), waited=5.0, loop=5.0, bytes=101 * 4_800_000), TINY, "memory",
        r'holds 1 batch of 4\.8 MB.*idle 75%.*`memory="20MB"` would give 2\.0x, then the training loop is the limit',
    ),
    "a small window": (
        stats(READ, step("image('jpg')", cpu=4.0), waited=5.0, loop=5.0), replace(PHOTOS, ahead=1), "ahead",
        "`ahead=1` is the limit.*`ahead=8`",
    ),
    "work that is asked for too late": (stats(READ, waited=5.0, loop=5.0), PHOTOS, "ahead", "Too few batches.*idle 95%"),
    "work of a DataLoader that is asked for too late": (
        stats(READ, waited=5.0, loop=5.0), replace(PHOTOS, ahead_option="prefetch_factor"), "ahead", "larger `prefetch_factor`",
    ),
    "a stream that gives too little": (
        stats(step("collate", cpu=0.1)), Facts(stored="stream"), "stream", "The stream is.*idle 100%.*`map`",
    ),
    "batches that are ready, and taken too slowly": (
        stats(READ, loop=0.1, history=(Moment(5.0, 5.0, 50, 5000, 4.5, 0.5, 2, ready=9),)), PHOTOS, "handout", "Larger batches",
    ),
    "a busy machine, and files that lie in memory": (
        stats(step("read", "read", cpu=1.0, queued=2.0, wait=16.0)), replace(PHOTOS, disk_bytes=0, idle_cores=0.1), "cores",
        "waited for a core 95%",
    ),
    "a busy machine, and files on a disk": (
        stats(step("read", "read", cpu=1.0, wait=16.0)), replace(PHOTOS, disk_bytes=1_000_000_000, idle_cores=0.1), "storage", "",
    ),
    "files in memory of another machine": (
        stats(step("read", "read", cpu=1.0, wait=16.0)), replace(PHOTOS, disk_bytes=0, idle_cores=1.5), "storage", "",
    ),
    "a function that holds the lock, and no workers": (
        stats(READ, step("map f", "function", cpu=8.0), workers=1, executor=ExecutorStats("inline", 0, 0)), PHOTOS, "workers",
        r"There are no workers.*`processes=2, threads=1` would give 2\.2x",
    ),
    "a function that holds the lock, and one thread": (
        stats(READ, step("map f", "function", cpu=8.5), workers=1, cores=8), PHOTOS, "workers",
        r"1 thread for 8 cores.*`processes=8, threads=1` would give 8\.0x",
    ),
    "a few slow rows, where whole batches are the work": (
        stats(
            step("read", "read", cpu=0.1), step("map_batch f", "function", cpu=9.0, lock=9.5),
            sample_costs=Histogram((0, 9_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100)),
        ),
        PHOTOS, "python", "map_batch f",
    ),
    "tiny batches": (stats(READ, loop=0.1, process_s=10.0), PHOTOS, "handout", "they are small.*Larger batches"),
    "a hand-over": (
        stats(READ, loop=4.0, waited=6.0, handed_s=5.9, bytes=590_000_000), replace(PHOTOS, device=True), "handover",
        r"to the device is the limit: it takes 59% of the time \(100\.0 MB/s\).*costs nothing would give 2\.5x",
    ),
    "a slow shard": (
        stats(
            step("read", "read", cpu=1.0, wait=12.0), step("image('jpg')", cpu=5.0),
            origins=(OriginStats("far.tar", 2_500, 10.0), OriginStats("near.tar", 7_500, 3.0)),
        ),
        PHOTOS, "shard", r"takes 4\.0 ms from far\.tar and 400 us from elsewhere.*50% of the workers' time.*would give 2\.1x",
    ),
    "shards that are alike": (
        replace(DECODING, origins=(OriginStats("a.tar", 5_000, 0.6), OriginStats("b.tar", 5_000, 0.4))), PHOTOS, "decode", "",
    ),
    "a few slow samples": (
        stats(
            READ, step("map f", "function", cpu=1.0, wait=17.0),
            sample_costs=histogram(ms1=9_900, ms100=100), slowest=(SlowSample("x/7.jpg", 0.1),),
        ),
        PHOTOS, "tail", r"costs 5\d%.*'x/7\.jpg' took 100\.0 ms.*would give 2\.\dx",
    ),
    "files that lie in memory, and take longer now and then because others have the cores": (
        stats(
            step("read", "read", cpu=1.0, queued=2.0, wait=16.0), sample_costs=histogram(ms1=9_900, ms100=100),
            slowest=(SlowSample("x/7.jpg", 0.1),),
        ),
        replace(PHOTOS, disk_bytes=0, idle_cores=0.1), "cores", "Other programs",
    ),
    "a cold cache": (
        stats(READ, step("map f", "function", wait=15.0), step("cache", cpu=1.0), cache_misses=10_000), PHOTOS, "cold",
        "100% of the samples.*next epochs, which find them",
    ),
    "a small cache": (
        stats(READ, step("map f", "function", wait=15.0), step("cache", cpu=1.0), cache_hits=5_000, cache_misses=5_000),
        replace(PHOTOS, samples=1_000), "cache", "too small.*many of them again",
    ),
    "copies": (
        stats(step("read", "read", cpu=0.9), step("collate", cpu=0.0), workers=1, cores=1, elapsed_s=1.05, waited_s=1.0),
        PHOTOS, "bandwidth", "Memory bandwidth.*moving",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_limit_is_named_and_what_would_help(name: str) -> None:
    found, facts, limit, words = CASES[name]
    text = verdict(found, facts)
    assert text.limit == limit, text
    assert re.search(words, text), text
    assert "samples/s" in text and text.endswith(".")


@pytest.mark.parametrize("name", CASES)
def test_where_nothing_is_trained_no_verdict_speaks_of_training(name: str) -> None:
    found, facts, limit, _ = CASES[name]
    text = verdict(found, facts, training=False)
    assert not re.search("training|loop", text), text
    assert text.limit != "slowed" and (limit in ("loop", "slowed") or text.limit == limit)


@pytest.mark.parametrize("name", CASES)
def test_no_more_is_known_than_was_measured(name: str) -> None:
    assert verdict(CASES[name][0]).endswith(".")  # without facts
    assert verdict(replace(CASES[name][0], steps=())).endswith(".")


def test_a_run_of_less_than_a_second_is_too_short_to_judge() -> None:
    text = verdict(replace(DECODING, elapsed_s=0.9, skipped=3))
    assert (text.limit, text.advice) == ("short", ())
    assert (
        text.startswith("This run is too short to judge: take more batches. ")
        and "samples/s" in text
        and "3 bad samples skipped" in text
    )
    assert "--epochs" in verdict(replace(DECODING, elapsed_s=0.9), training=False)


@pytest.mark.parametrize("few", [Stats(), Stats(batches=1, samples=4), Stats(batches=5)], ids=["nothing", "one batch", "no time"])
def test_too_little_is_said_to_be_too_little(few: Stats) -> None:
    assert "The run is too short to say" in verdict(few) and verdict(few).limit == "short"


def test_what_went_wrong_is_mentioned_only_when_something_did() -> None:
    assert not re.search("skipped|damaged|seek indices|ran again", verdict(DECODING))
    text = verdict(replace(DECODING, skipped=3, damaged=1, seeks_unfit=4, seeks_used=28, lost=2))
    for note in ("3 bad samples skipped", "1 damaged image decoded", "4 of 32 seek indices did not fit", "2 tasks ran again"):
        assert note in text


def test_who_runs_the_work_is_said_last_where_nobody_chose_it() -> None:
    moved = replace(DECODING, executor=ExecutorStats("threads", 0, 2, 30, "they wait for storage", 1))
    assert verdict(moved).endswith(" Work runs in 2 threads since batch 30: they wait for storage.")
    assert "Work runs" not in verdict(DECODING)


def test_pauses_are_mentioned_where_there_were_some() -> None:
    assert "over 10.0 s (without 60.0 s of pauses); the training loop" in verdict(replace(DECODING, paused_s=60.0))
    assert "pauses" not in verdict(replace(DECODING, paused_s=0.5))


def test_work_that_is_ahead_of_the_loop_is_not_taken_for_that_of_fewer_samples() -> None:
    rows, whole = step("read", "read", cpu=4.0), replace(step("map_batch f", "function", cpu=8.0), samples=SAMPLES)
    ahead = stats(replace(rows, samples=2 * SAMPLES), whole, first_samples=1_000, worked=2 * SAMPLES)
    assert costs_of(ahead, Facts()).cpu_s == pytest.approx(0.0002 + 0.0008)
    filtered = stats(replace(rows, samples=50 * SAMPLES), whole)
    assert costs_of(filtered, Facts()).cpu_s == pytest.approx(0.0004 + 0.0008), "what a filter leaves out was work for others"


def test_samples_that_a_cache_did_not_have_yet_are_not_called_slow() -> None:
    costs = histogram(ms1=9_900, ms100=100)
    steps = (step("image('jpg')", cpu=9.0), step("cache", cpu=1.0), step("image('jpg') #2", cpu=8.0))
    filling = stats(READ, *steps, sample_costs=costs, cache_hits=9_900, cache_misses=100)
    assert verdict(filling, PHOTOS).limit == "decode"
    assert verdict(replace(filling, steps=(READ, *steps[2:])), PHOTOS).limit == "tail"


def test_a_cache_is_advised_where_it_fits_and_would_help() -> None:
    crops = replace(PHOTOS, prefix=("read", "image('jpg')"), samples=10_000)
    text = verdict(stats(READ, IMAGE, step("map f", "function", cpu=0.5), waited=9.0, loop=2.0), crops)
    assert "`.cache(\"memory\")` after image('jpg'), which fits in memory (1.0 GB of 18.0 GB free), would give 5.0x" in text
    assert "then the training loop is the limit" in text
    assert "a cache on a disk" in verdict(DECODING, replace(crops, samples=10_000_000))
    assert ".cache" not in verdict(stats(READ, IMAGE, step("cache", cpu=0.1)), crops)


def test_a_verdict_is_a_text_with_its_limit_and_advice_and_shows_itself() -> None:
    text = verdict(DECODING, PHOTOS)
    for same in (copy.copy(text), pickle.loads(pickle.dumps(text))):  # noqa: S301  our own
        assert isinstance(same, Verdict) and (same, same.limit, same.advice) == (text, "decode", text.advice)
    assert json.loads(json.dumps(text)) == text
    assert text.advice[0].gain and text.advice[0].gain > 1
    shown = verdict(stats(READ, step("map <f>", "function", cpu=9.0, lock=9.5)))._repr_html_()
    assert "<b>python</b>" in shown and "map &lt;f&gt;" in shown and "<f>" not in shown


def test_whatever_was_measured_there_is_a_verdict_and_gains_are_gains() -> None:
    some = random.Random(7)

    def seconds() -> float:
        return some.choice([0.0, 0.0, some.uniform(0, 1), some.uniform(0, 40)])

    for _ in range(400):
        names = some.sample(
            [("read", "read"), ("image('jpg')", "native"), ("map f", "function"), ("cache", "native")], some.randint(0, 4)
        )
        steps = [step(*name, cpu=seconds(), lock=seconds(), queued=seconds(), wait=seconds()) for name in names]
        found = stats(
            *steps,
            waited=some.uniform(0, 10),
            loop=seconds(),
            workers=some.choice([1, 2, 16]),
            cores=some.choice([0, 1, 2, 16]),
            handed_s=some.choice([0.0, some.uniform(0, 10)]),
            process_s=seconds(),
            bytes=some.choice([0, 10**9]),
            pillow=some.choice([0, 9_000]),
            draws=some.choice([0, 5]),
            cache_misses=some.choice([0, 5_000]),
            executor=some.choice(
                [ExecutorStats("inline", 0, 0), ExecutorStats("threads", 0, 2), ExecutorStats("processes", 2, 1)]
            ),
            sample_costs=some.choice([Histogram(), histogram(ms1=900, ms100=100)]),
            origins=some.choice([(), (OriginStats("a", 10, 1.0), OriginStats("b", 900, 1.0))]),
        )
        found = replace(found, loop=replace(found.loop, busy_steps=9, busy_step_s=seconds(), calm_steps=9, calm_step_s=seconds()))
        facts = replace(
            PHOTOS, idle_cores=some.choice([None, 0.0, 1.0]), ahead=some.choice([None, 1]), stored=some.choice(["", "files"])
        )
        for training in (True, False):
            text = verdict(found, facts, training=training)
            assert text.endswith(".") and "inf" not in text and "nan" not in text, text
            assert all(advice.gain is None or 1.0 <= advice.gain < math.inf for advice in text.advice), text.advice


# ---- what if -------------------------------------------------------------------------------------------------------------


def test_the_scarcest_resource_makes_the_rate() -> None:
    costs = Costs(8, 4, 1, 1, cpu_s=1e-3, python_s=1e-4, wait_s=3e-3, loop_s=1e-4, handed_s=1e-4)
    assert costs.rates() == pytest.approx({"loop": 5000, "cores": 4000, "python": 10_000, "workers": 2000})
    assert min(costs.with_workers(64).rates().values()) == pytest.approx(4000)


def test_a_change_gives_what_the_measured_rate_and_the_next_limit_allow() -> None:
    measured = replace(DECODING, loop=LoopStats(101, 5.0))
    costs = costs_of(measured, Facts())
    found = predict(measured, costs, costs.with_cores(100), "cores")
    assert (found.gain, found.limit) == (pytest.approx(2.0), "loop")
    assert predict(measured, costs, costs, "cores").gain == pytest.approx(1.0)


def test_cores_that_others_use_are_not_counted_on() -> None:
    waiting = stats(step("read", "read", cpu=1.0, wait=16.0), step("image('jpg')", cpu=2.5))
    alone, beside = (verdict(waiting, replace(PHOTOS, idle_cores=idle)).advice[0].gain or 0 for idle in (1.6, 0.35))
    assert alone == pytest.approx(4.0, rel=0.05) and beside == pytest.approx(2.0, rel=0.05)


def test_ranks_share_what_they_have_and_each_has_a_loop() -> None:
    both = merge([replace(DECODING, host="a"), replace(DECODING, host="b")])
    text = verdict(both, PHOTOS)
    assert text.limit == "decode" and "3.8 of 4 cores" in text and "waited 90%" in text


def test_a_real_run_has_a_verdict() -> None:
    with numbers(4000).batch(4).loader(threads=2) as loader:
        assert loader.why().limit == "short"
        list(loader)
        assert "samples/s" in loader.why() and "waited" in loader.why()
        assert loader.facts().samples == 4000 and loader.facts().stored == "memory"


def test_nothing_is_said_of_a_run_that_gave_no_sample_after_the_first_batch() -> None:
    stats = Stats(batches=2, samples=4, first_samples=4, elapsed_s=2.0, waited_s=0.01, workers=2, cores=2)
    assert verdict(stats).limit == "short"
