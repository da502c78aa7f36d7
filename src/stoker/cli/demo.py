"""`stoker demo`: a data set, a pipeline, a training run, a resume and a verdict, in one command."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from ..errors import ConfigError, StateError
from ..observe.report import write_report
from ..observe.run_settings import command_line
from .progress import Progress
from .run import stats_json, tell_verdict, verdict_json
from .screen import AsJson, ReportFile, Threads, amount, check_writable, option, print_json, tell, tell_plan
from .watching import Port, Watched, timeline_of, watching

if TYPE_CHECKING:
    from ..loader import Loader
    from ..pipeline import Pipeline
    from .learners import Learner

#: how text is printed: `tell`, or not at all
Say: TypeAlias = Callable[..., None]
#: a function that is shown batches
Show: TypeAlias = Callable[[Any], None]

_SIDE, _BATCH = 64, 32
_TRAIN, _VALIDATION = 600, 160


def demo(
    epochs: Annotated[int, amount("Number of epochs.")] = 6,
    threads: Threads = None,
    keep: Annotated[Path | None, option("DIR", "Keep the pictures in this new folder.", default="they are removed")] = None,
    html: ReportFile = None,
    watch: Watched = False,
    port: Port = 0,
    json: AsJson = False,
) -> None:
    """Train a small model on generated pictures: all of Stoker in 30 s.

    Makes a small data set of coloured shapes, trains a classifier on it (with PyTorch if it is installed, else with NumPy), and
    shows the rate of batches and how long the model waited for them. Then it stops, resumes, and prints the verdict. It leaves no
    files behind.

    Example: `stoker demo --html report.html`
    """
    from .learners import make_learner

    check_writable(html)
    begun, say = time.monotonic(), _silent if json else tell
    with _folder(keep) as folder:
        _draw(folder, say)
        train, validation = _pipelines(folder)
        if not json:
            tell("\nPipeline", style="bold")
            tell_plan(train.explain())
        learner = make_learner(len(train.classes), _SIDE)
        with train.loader(threads=threads) as loader, validation.loader(threads=threads) as exam:
            view = watch or (sys.stderr.isatty() and not json)
            with (
                watching(loader, watch, port, title="Stoker demo", terminal=view) as show,
                timeline_of(loader, html) as timeline,
            ):
                say_above = _above_view if view and not json else say
                lesson, last = _train(loader, exam, learner, epochs, say_above, show, progress=False if view else None)
            stats, why = loader.stats(), loader.why()
            if html:
                under = f"{learner.name}, {_TRAIN} pictures, {epochs} epochs"
                more: dict[str, Any] = {"lesson": lesson, "timeline": timeline(), "under": under, "command": command_line()}
                write_report(loader, html, title="Stoker demo", batch=last, **more)
        chance = f"guessing: {1 / len(train.classes):.0%}"
        say(f"accuracy is on {_VALIDATION} pictures it was not trained on; {chance}", style="dim")
        resumed = _resume(train, epochs - 1, threads, say)
    spent = time.monotonic() - begun
    if json:
        print_json(
            {
                "images": {"train": _TRAIN, "validation": _VALIDATION},
                "classes": list(train.classes),
                "model": learner.name,
                "epochs": lesson,
                "accuracy": lesson[-1]["accuracy"],
                "chance": 1 / len(train.classes),
                "resume": resumed,
                "stats": stats_json(stats),
                **verdict_json(why),
                "seconds": spent,
            }
        )
        return
    tell_verdict(why)
    told = f"\nAll of this took {spent:.0f} s."
    if html:
        told += f" The report is in {html}."
    if keep:
        told += f" The pictures are in {keep}: try stoker show {keep / 'train'}"
    tell(told)


def _draw(folder: Path, say: Say) -> None:
    from .shapes import make_shapes

    begun = time.monotonic()
    with Progress("making", _TRAIN + _VALIDATION, unit="images") as shown:
        make_shapes(folder / "train", _TRAIN, seed=1, moved=shown.move)
        make_shapes(folder / "validation", _VALIDATION, seed=2, moved=lambda done: shown.move(_TRAIN + done))
    spent = time.monotonic() - begun
    size = sum(path.stat().st_size for path in folder.glob("*/*/*.jpg"))
    say("Pictures", style="bold")
    say(f"{_TRAIN} to train on, {_VALIDATION} to check with, {size / 1e6:.1f} MB of JPEG, made in {spent:.1f} s")


def _pipelines(folder: Path) -> tuple[Pipeline, Pipeline]:
    """What a user would write."""
    import stoker
    from stoker.image import HorizontalFlip, Normalize, RandomResizedCrop, Resize

    normalize = Normalize(mean=(0.4, 0.4, 0.4), std=(0.25, 0.25, 0.25))
    train = (
        stoker.files(folder / "train")
        .shuffle(seed=7)
        .image("image", RandomResizedCrop(_SIDE, scale=(0.6, 1.0)), HorizontalFlip(), normalize)
        .batch(_BATCH)
    )
    validation = (
        stoker.files(folder / "validation").image("image", Resize((_SIDE, _SIDE)), normalize).batch(_BATCH, drop_last=False)
    )
    return train, validation


def _train(
    loader: Loader, exam: Loader, learner: Learner, epochs: int, say: Say, show: Show, progress: bool | None
) -> tuple[list[dict[str, float]], Any]:
    """What was learned in each epoch, and the last batch."""
    say("\nTraining", style="bold")
    say(f"a {learner.name}\n")
    say("epoch    loss   accuracy   images/s   waited for data", style="dim")
    lesson = []
    for number in range(1, epochs + 1):
        row, last = _epoch(number, epochs, loader, exam, learner, say, show, progress)
        lesson.append(row)
    return lesson, last


def _epoch(
    number: int, epochs: int, loader: Loader, exam: Loader, learner: Learner, say: Say, show: Show, progress: bool | None
) -> tuple[dict[str, float], Any]:
    """Train one epoch, then check on pictures the model has not seen; the last batch is given back, for its pictures."""
    before, begun = loader.stats(), time.monotonic()
    losses: list[float] = []
    samples = 0
    with Progress(f"epoch {number} of {epochs}", len(loader), progress, unit="batches") as shown:
        for batch in loader:
            show(batch)
            images, labels = batch
            losses.append(learner.learn(images, labels))
            samples += len(labels)
            shown.move(len(losses), f"loss {losses[-1]:.3f}, {samples / (time.monotonic() - begun):,.0f} images/s")
    spent, after = time.monotonic() - begun, loader.stats()
    waited = after.waited_s - before.waited_s + after.first_batch_s - before.first_batch_s
    right = total = 0
    for images, labels in exam:
        right += int((learner.classify(images) == labels).sum())
        total += len(labels)
    row = {
        "epoch": number,
        "loss": sum(losses) / len(losses),
        "accuracy": right / total,
        "images_per_s": samples / spent,
        "wait_share": min(1.0, waited / spent),
    }
    say(f"{number:5d}   {row['loss']:5.3f}   {row['accuracy']:8.1%}   {row['images_per_s']:8,.0f}   {row['wait_share']:6.1%}")
    return row, batch


def _resume(train: Pipeline, epoch: int, threads: int | None, say: Say) -> dict[str, Any]:
    """Stop in the middle of an epoch, save, and go on with another loader, which has no threads."""
    import json

    import numpy as np

    with train.loader(threads=threads, epoch=epoch) as stopped:
        batches = iter(stopped)
        step = len(stopped) // 2
        for _ in range(step):
            next(batches)
        saved = json.dumps(stopped.state_dict())
        expected = next(batches)
    with train.loader(executor="inline") as resumed:
        resumed.load_state_dict(json.loads(saved))
        found = next(iter(resumed))
    same = all(np.array_equal(ours, theirs) for ours, theirs in zip(expected, found))
    identical = same and expected.sample_keys == found.sample_keys
    if not identical:
        raise StateError(f"resumed at step {step} of epoch {epoch}: the next batch is a different one; please report this")
    say("\nResume", style="bold")
    say(f"resumed at step {step} of epoch {epoch + 1}, in a new loader without threads: the next batch is identical, bit for bit")
    return {"epoch": epoch, "step": step, "identical": identical, "state": json.loads(saved)}


def _above_view(text: str = "", style: str = "") -> None:
    """In the place of `tell`, while the terminal shows a view: whoever draws it takes what goes to standard output."""
    sys.stdout.write(f"{text}\n")


def _silent(text: str = "", style: str = "") -> None:
    """In the place of `tell`, with ``--json``."""


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where the pictures go: a new folder that stays, or a temporary one."""
    if keep is None:
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="stoker-demo-") as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"--keep {keep}: already exists and is not empty; choose a new folder")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--keep {keep}: the folder cannot be made: {error.strerror}") from error
    yield keep
