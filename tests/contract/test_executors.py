"""What every executor promises. A new executor adds a class at the end of this file and gets all of these tests."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Pipeline
from stoker.batch.slab import Layout, Slab, plain_memory
from stoker.batch.written_rows import WrittenRows
from stoker.engine.auto_policy import AutoPolicy, Choice, Load, Setting
from stoker.engine.executor_names import EXECUTORS
from stoker.engine.feed import Pace
from stoker.errors import BatchError, ConfigError, FunctionError, KernelError, SampleError, WorkerError
from stoker.image import CenterCrop, CutMix, HorizontalFlip, MixUp, RandAugment, RandomResizedCrop, Resize
from stoker.kernel.native import Images
from stoker.loader.batch_units import BatchPart, BatchWork
from stoker.loader.build import compile_work, layout_of
from stoker.plan.order import Places
from stoker.source.chunk import BytesColumn
from stoker.storage.scratch import Scratch
from tests.contract.deadly_samples import DEADLY, DEADLY_MANY, DEADLY_TOGETHER, dies_at_31, fails_at_31
from tests.contract.pickling import PicklingExecutor, end_worker
from tests.loader.runs import (
    PIPELINES,
    SINGLES,
    bad_every_seventh,
    feed_hash,
    forgiving,
    hash_of,
    numbers,
    odd,
    run_python,
    sha_of_run,
    two_of_three,
)
from tests.support import jpeg_bytes
from tests.system.random_pipelines import case_of, pipeline_of
from tests.system.stored_samples import Shelf

PICTURES = [jpeg_bytes(40 + 3 * seed, 50, seed=seed) for seed in range(13)]
SEEDS = range(24)
KINDS = [*PIPELINES, *SINGLES]


def unlabelled(sample: dict[str, Any]) -> bool:
    return bool(sample["cls"] % 3)


def stored_pictures(folder: Path) -> dict[str, Pipeline]:
    """Pictures in every kind of store, through stages that keep memory, programs and tables between tasks."""
    paths = [folder / f"{number}.jpg" for number in range(len(PICTURES))]
    for path, data in zip(paths, PICTURES):
        path.write_bytes(data)
    samples = [{"__key__": f"k{n}", "jpg": data, "cls": n} for n, data in enumerate(PICTURES)]
    records = [{"image": data, "label": n, "box": np.array([[0.1, 0.2, 0.7, 0.9]] * (n % 3))} for n, data in enumerate(PICTURES)]
    tar = stoker.tar(list(stoker.write_tar(folder / "{:03d}.tar", samples, max_samples=5, seek=True).paths))
    tfrecord = stoker.tfrecord(
        list(
            stoker.write_tfrecord(folder / "{:03d}.tfrecord", [{"image": r["image"], "label": r["label"]} for r in records]).paths
        ),
        features={"image": bytes, "label": int},
    )
    stoker.write_lmdb(folder / "records.lmdb", [{"__key__": f"r{n}", **record} for n, record in enumerate(records)])
    lmdb = stoker.lmdb(folder / "records.lmdb")
    files = stoker.files(paths, labels=list(range(len(paths)))).shuffle(seed=2)
    crops = (RandomResizedCrop(16), HorizontalFlip())
    return {
        "files": files.image("image", *crops, layout="chw", out="float32").batch(4),
        "files, sizes vary": files.image("image", Resize(20)).batch(4, drop_last=False),
        "files, blended": files.image("image", *crops).batch(4).blend(MixUp(classes=20), CutMix(classes=20)),
        "tar": tar.shuffle(seed=3).image("jpg", *crops, RandAugment()).batch(3),
        "tar, bytes": tar.shuffle(seed=3).batch(3, drop_last=False),
        "tar behind filter": tar.filter(unlabelled).image("jpg", Resize((12, 14)), RandAugment()).batch(3),
        "tfrecord": tfrecord.image("image", Resize(30), CenterCrop(20)).batch(3),
        "lmdb, boxes": lmdb.image("image", RandomResizedCrop(16), boxes="box", relative_boxes=True).batch(3, pad={"box": -1}),
        "mix": stoker.mix([files.select("image"), lmdb.select("image")]).image("image", *crops).batch(4),
    }


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pipeline]:
    return stored_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("shelf"))


@cache
def expected(kind: str) -> str:
    """What the oracle gives."""
    return sha_of_run(pipeline_named(kind), executor="inline")


def pipeline_named(kind: str) -> Pipeline:
    return PIPELINES[kind](7) if kind in PIPELINES else SINGLES[kind]()


def picky(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 31:
        raise KeyError("no such thing")
    return sample


def error_of(pipeline: Pipeline, **options: Any) -> Exception:
    with pipeline.loader(**options) as loader, pytest.raises(Exception) as caught:
        list(loader)
    return caught.value


def told(error: BaseException | None) -> Any:
    """All that users see of an error, but where in the code it was."""
    if error is None:
        return None
    about = [getattr(error, name, None) for name in ("key", "origin", "position", "errno", "filename")]
    return type(error), str(error), about, told(error.__cause__)


def run_of(pipeline: Pipeline, **options: Any) -> tuple[list[str], int, Exception | None]:
    """Hashes of the batches that come, how many samples were left out, and the error that ends it."""
    batches: list[str] = []
    with pipeline.loader(**options) as loader:
        try:
            for batch in loader:
                batches.append(hash_of(batch))
        except Exception as error:
            return batches, loader.stats().skipped, error
        return batches, loader.stats().skipped, None


def place_of(error: Exception | None) -> Any:
    assert isinstance(error, SampleError)
    return error.key, error.origin, error.position


class ExecutorContract:
    """Inherit this and say what to give to `loader()`."""

    options: dict[str, Any]
    seeds: range = SEEDS
    stored = slice(None)  # which of the stored pictures

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_gives_the_batches_that_the_callers_own_thread_gives(self, kind: str) -> None:
        assert sha_of_run(pipeline_named(kind), **self.options) == expected(kind)

    def test_it_gives_the_same_of_all_that_is_stored_and_leaves_the_source_as_it_was(self, pictures: dict[str, Pipeline]) -> None:
        for kind, pipeline in [*pictures.items()][self.stored]:
            fresh: Pipeline = pickle.loads(pickle.dumps(pipeline))  # noqa: S301
            before = pickle.dumps(fresh)
            assert sha_of_run(fresh, **self.options) == sha_of_run(pipeline, executor="inline"), kind
            assert pickle.dumps(fresh) == before, kind

    def test_it_gives_the_same_of_random_pipelines(self, shelf: Shelf) -> None:
        for seed in self.seeds:
            case = case_of(seed, shelf)
            pipeline = pipeline_of(case.spec, shelf, case.ranks, 0, case.shard_at)
            if pipeline.plan.counted and not pipeline.plan.pass_rows:
                continue
            try:
                inline = sha_of_run(pipeline, epochs=1, executor="inline")
            except ConfigError:
                continue  # it gives no batch at all
            assert sha_of_run(pipeline, epochs=1, **self.options) == inline, case

    def test_an_epoch_that_is_left_does_not_disturb_the_next(self) -> None:
        pipeline = numbers(400).shuffle(seed=1).batch(8)
        with pipeline.loader(executor="inline", epoch=1) as loader:
            wanted = [hash_of(batch) for batch in loader]
        with pipeline.loader(**self.options) as loader:
            held = [batch for batch, _ in zip(loader, range(3))]
            before = [hash_of(batch) for batch in held]
            assert [hash_of(batch) for batch in loader] == wanted, "tasks that were cancelled write to no memory of others"
            assert [hash_of(batch) for batch in held] == before, "and neither do later ones to that of the user"

    def test_a_loader_that_is_closed_in_the_middle_leaves_its_batches_valid(self) -> None:
        with numbers(400).shuffle(seed=1).batch(8).loader(**self.options) as loader:
            batch = next(iter(loader))
            before = hash_of(batch)
        assert hash_of(batch) == before

    @pytest.mark.parametrize(
        "pipeline",
        [
            numbers().map(picky).batch(8),
            numbers().map(x=bad_every_seventh).batch(8),
            numbers().filter(odd).map(picky).batch(4),
            numbers().map(picky).filter(two_of_three).batch(4),
            numbers().map(picky),
            numbers().batch(8).map_batch(picky),
        ],
        ids=["map", "field", "behind filter", "before filter", "single", "map_batch"],
    )
    def test_errors_are_those_of_the_callers_own_thread(self, pipeline: Pipeline) -> None:
        error = error_of(pipeline, **self.options)
        assert told(error) == told(error_of(pipeline, executor="inline"))
        assert isinstance(error, FunctionError) and error.__cause__ is not None
        notes = "".join(getattr(error.__cause__, "__notes__", ()))
        frames, at = [], error.__cause__.__traceback__
        while at is not None:
            frames.append(at.tb_frame.f_code.co_name)
            at = at.tb_next
        assert "picky" in notes or "bad_every_seventh" in notes or {"picky", "bad_every_seventh"} & set(frames)

    def test_a_file_that_is_gone_is_told_with_the_systems_error_number(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        for number in range(6):
            (tmp_path / "a" / f"{number}.jpg").write_bytes(PICTURES[number])
        pipeline = stoker.files(tmp_path).batch(2)
        (tmp_path / "a" / "3.jpg").unlink()
        error = error_of(pipeline, **self.options)
        assert isinstance(error, SampleError) and told(error) == told(error_of(pipeline, executor="inline"))

    def test_bad_samples_are_left_out_and_told_in_order(self) -> None:
        def run(**options: Any) -> tuple[list[Any], int]:
            with forgiving(numbers().shuffle(seed=1).map(x=bad_every_seventh).batch(8)).loader(**options) as loader:
                return [hash_of(batch) for batch in loader], loader.stats().skipped

        assert run(**self.options) == run(executor="inline")


class LosingExecutorContract(ExecutorContract):
    """The same for executors whose workers may end before their tasks do. `die` is what a function does that ends its worker."""

    die: Callable[[], Any]
    deadly: Sequence[str] = tuple(DEADLY)

    def killer(self) -> Callable[[Any], Any]:
        return partial(dies_at_31, type(self).__dict__["die"].__func__)

    def test_the_sample_that_ends_its_worker_is_named_in_its_place(self) -> None:
        for kind in self.deadly:
            batches, _, error = run_of(DEADLY[kind](self.killer()), **self.options)
            wanted, _, failed = run_of(DEADLY[kind](partial(dies_at_31, fails_at_31)), executor="inline")
            assert (batches, place_of(error)) == (wanted, place_of(failed)), kind
            assert isinstance(error, WorkerError) and "31" in error.key and f"({error.origin})" in str(error), kind

    def test_the_sample_that_ends_its_worker_is_left_out_and_no_other(self, tmp_path: Path) -> None:
        for kind in self.deadly:
            bad = tmp_path / f"{kind}.jsonl"
            skipping = {"budget": 3, "fill": "repeat" if kind == "batches" else None}
            pipeline = DEADLY[kind](self.killer()).on_error("skip", quarantine=str(bad), **skipping)
            forgiven = DEADLY[kind](partial(dies_at_31, fails_at_31)).on_error("skip", **skipping)
            assert run_of(pipeline, **self.options) == run_of(forgiven, executor="inline"), kind
            (entry,) = [json.loads(line) for line in bad.read_text().splitlines()]
            assert "31" in entry["key"] and entry["error"] == "WorkerError", kind


class TestInline(ExecutorContract):
    options = {"executor": "inline"}  # noqa: RUF012


class TestThreads(ExecutorContract):
    options = {"threads": 2}  # noqa: RUF012

    def test_a_task_that_was_cancelled_and_goes_on_writes_to_no_batch_of_others(self) -> None:
        begun, release = threading.Event(), threading.Event()

        def stay(x: Any) -> Any:
            if x == 9 and not begun.is_set():
                begun.set()
                release.wait(60)
                return -1
            return x

        with numbers(80).map(x=stay).batch(8).loader(**self.options) as loader:
            next(iter(loader))
            assert begun.wait(60)
            batches = list(loader)
            release.set()
            loader.close()  # which waits for the worker
            assert [int(x) for batch in batches for x in batch["x"]] == list(range(80))


class TestProcesses(LosingExecutorContract):
    """Every run starts processes, so these and the next have half of the pipelines each; the pickling executor has all."""

    options = {"processes": 2, "threads": 1}  # noqa: RUF012
    seeds, stored = SEEDS[:4], slice(0, None, 2)
    die = staticmethod(os.abort)
    deadly = ("small batches made together",)

    @pytest.mark.parametrize("kind", KINDS[0::2])
    def test_it_gives_the_batches_that_the_callers_own_thread_gives(self, kind: str) -> None:
        super().test_it_gives_the_batches_that_the_callers_own_thread_gives(kind)


class TestFeeder(LosingExecutorContract):
    options = {"processes": 1, "threads": 2}  # noqa: RUF012
    seeds, stored = SEEDS[6:10], slice(1, None, 2)
    die = staticmethod(partial(os._exit, 0))
    deadly = ("in filter",)

    @pytest.mark.parametrize("kind", KINDS[1::2])
    def test_it_gives_the_batches_that_the_callers_own_thread_gives(self, kind: str) -> None:
        super().test_it_gives_the_batches_that_the_callers_own_thread_gives(kind)


class TestPickling(LosingExecutorContract):
    options = {"executor": "pickling", "threads": 3}  # noqa: RUF012
    die = staticmethod(end_worker)

    @pytest.fixture(autouse=True)
    def _registered(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        entry = ("tests.contract.pickling", "PicklingExecutor", "")
        monkeypatch.setitem(EXECUTORS._entries, "pickling", entry)
        yield

    def test_a_task_that_is_lost_runs_again(self) -> None:
        before = PicklingExecutor.lost
        sha_of_run(numbers().batch(4).map_batch(dict), **self.options)
        assert PicklingExecutor.lost > before

    def test_a_task_that_is_lost_before_it_begins_is_never_to_blame(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PicklingExecutor, "unlucky", 12)
        for kind in ("map_batch", "two segments", "single"):
            assert sha_of_run(pipeline_named(kind), epochs=1, **self.options) == sha_of_run(
                pipeline_named(kind), epochs=1, executor="inline"
            )

    @pytest.mark.parametrize("policy", ["skip", "raise"])
    def test_a_sample_that_ends_its_workers_ends_two_of_them(self, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PicklingExecutor, "every", 0)
        for kind, make in DEADLY.items():
            PicklingExecutor.deaths.clear()
            run_of(make(self.killer()).on_error(policy), **self.options)
            assert max(PicklingExecutor.deaths.values()) == 2, kind  # by unit: the next epoch is begun, too

    @pytest.mark.parametrize("policy", ["skip", "raise"])
    @pytest.mark.parametrize("kind", DEADLY_MANY)
    def test_a_task_of_many_samples_is_cut_again_and_again_until_the_one_is_found(
        self, kind: str, policy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(PicklingExecutor, "every", 0)
        monkeypatch.setattr(Pace, "task_rows", lambda pace, rows: rows)
        PicklingExecutor.deaths.clear()
        make, deaths = DEADLY_MANY[kind]
        batches, skipped, error = run_of(make(self.killer()).on_error(policy), **self.options)
        wanted = run_of(make(partial(dies_at_31, fails_at_31)).on_error(policy), executor="inline")
        assert (batches, skipped, error is None) == (wanted[0], wanted[1], wanted[2] is None)
        assert error is None or place_of(error) == place_of(wanted[2])
        assert max(PicklingExecutor.deaths.values()) == deaths

    def test_samples_after_one_that_failed_end_no_worker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PicklingExecutor, "every", 0)
        monkeypatch.setattr(Pace, "task_rows", lambda pace, rows: rows)
        PicklingExecutor.deaths.clear()
        _, _, error = run_of(numbers(2000).map(x=dies_from_31).batch(1000), **self.options)
        assert place_of(error)[0] == "31"
        assert {*PicklingExecutor.deaths.values()} == {3}

    @pytest.mark.parametrize("policy", ["skip", "raise"])
    @pytest.mark.parametrize("kind", DEADLY_TOGETHER)
    def test_samples_that_cannot_be_told_apart_are_named_together(
        self, kind: str, policy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(PicklingExecutor, "every", 0)
        batches, _, error = run_of(DEADLY_TOGETHER[kind](self.killer()).on_error(policy), **self.options)
        assert isinstance(error, WorkerError) and error.key == ""
        assert re.search(r"worked on 8 samples \('24', '25', .*, '31'\) together was ended by the test, twice", str(error))
        wanted, _, _ = run_of(DEADLY_TOGETHER[kind](partial(dies_at_31, fails_at_31)), executor="inline")
        assert batches == wanted


def dies_from_31(x: Any) -> Any:
    return x if x < 31 else end_worker()


class Restless(AutoPolicy):
    """Moves the work whenever it is asked, between threads and what could be anywhere."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self._turns = cycle([Setting(1, 2), Setting(0, 3), Setting(2, 1), Setting(1, 1), Setting(0, 1)])

    def see(self, load: Load) -> Choice:
        return Choice(next(self._turns), "it is restless")


class TestAuto(ExecutorContract):
    """Work that moves on all the time, half of it to where everything that crosses is pickled."""

    options = {"executor": "auto"}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _moving(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(EXECUTORS._entries, "processes", ("tests.contract.pickling", "PicklingExecutor", ""))
        monkeypatch.setattr("stoker.loader.machinery.policy_of", lambda *_: Restless())
        monkeypatch.setattr("stoker.observe.meters._CPU_EVERY_S", -1.0)
        monkeypatch.setattr("stoker.loader.auto_watch._LOAD_S", 0.0)
        monkeypatch.setattr("stoker.loader.auto_watch._LOAD_BATCHES", 1)

    def test_it_moves_and_says_so(self) -> None:
        names: set[str] = set()
        with numbers(400).batch(4).loader(**self.options) as loader:
            for _ in range(1000):
                names |= {loader.stats().executor.name for _ in loader}
                if loader.stats().executor.moves > 3:
                    break
        assert loader.stats().executor.moves > 3
        assert names == {"threads", "processes"}
        assert "it is restless" in loader.why()


ELSEWHERE = """
import pickle, sys
from tests.contract.test_executors import rows_of
print(rows_of(*pickle.load(open(sys.argv[1], "rb"))))
"""


def rows_of(work: BatchWork, rows: Places) -> str:
    """A hash over what a task of these rows writes."""
    slab = Slab(work.layout, *plain_memory(work.layout.nbytes + 64))
    with closing(Scratch()) as scratch:
        written = work(BatchPart(rows, 0, slab), scratch)
    assert isinstance(written, WrittenRows)
    columns = {**{name: array[: len(rows)] for name, array in slab.arrays.items()}, **written.loose}
    sha = hashlib.sha256()
    for name, column in sorted(columns.items()):
        feed_hash(sha, [name, column.own() if isinstance(column, BytesColumn) else column])
    return sha.hexdigest()


def test_pickled_work_does_the_same_in_another_process(pictures: dict[str, Pipeline], tmp_path: Path) -> None:
    for kind in ("tar", "lmdb, boxes", "files", "mix"):
        plan = pictures[kind].plan
        work, _ = compile_work(plan, layout_of(plan, 1))
        assert plan.order is not None
        rows = plan.order.places(np.arange(2, 5), 1)
        here = rows_of(work, rows)
        wire = pickle.dumps((work, rows))
        assert rows_of(*pickle.loads(wire)) == here, kind  # noqa: S301
        if kind == "tar":  # with a policy of effects, whose table the kernel finds by its address
            (tmp_path / "wire").write_bytes(wire)
            ran = run_python(ELSEWHERE, str(tmp_path / "wire"))
            assert (ran.returncode, ran.stdout.strip()) == (0, here), ran.stderr


def test_what_belongs_to_a_worker_refuses_to_travel() -> None:
    scratch = Scratch()
    for handle, name in (
        (scratch.decoder, "decoder"),
        (Images(np.zeros((1, 2, 2, 3), np.uint8)), "images"),
        (scratch, "scratch"),
    ):
        with pytest.raises(KernelError, match=f"{name}.* cannot be pickled"):
            pickle.dumps(handle)
    with pytest.raises(BatchError, match="memory has no address"):
        pickle.dumps(Slab(Layout.of({}, 1), *plain_memory(64)))
    scratch.close()


@pytest.mark.parametrize("name", ["process", "", 3])
def test_an_executor_that_does_not_exist_is_told_with_those_that_do(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"no such executor; choose 'auto', 'threads', 'processes', 'inline' or 'ray'"):
        numbers().batch(4).loader(executor=name)


def test_threads_for_an_executor_that_has_none_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"executor='inline', threads=8\): it has no threads.*omit threads"):
        numbers().batch(4).loader(executor="inline", threads=8)
