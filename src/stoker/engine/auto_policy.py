"""Decides which executor suits the work, from measurements alone: no clock, no threads, no I/O.

Loads go in, about two per second, and choices come out, so it is tested in microseconds. Three things limit workers while the
consumer waits: cores, which nothing here can add; the GIL, if Python functions compute, where more interpreters help; and
waiting (for a disk, a network, a sleep), where more threads help. Each choice is on trial: if the rate is not better than
before, the work moves back, and the choice is not made again until the load changes.

If the consumer does not wait, it has what it needs, and the question is whether its steps take longer next to busy workers. If
so, other or fewer workers do the same work: fast enough, but not faster. That is on trial too, by the consumer's rate; when it
waits again, all workers come back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..sizes import counted

#: a consumer that waits for less than this share of its time has what it needs
_CALM = 0.1
#: workers that keep this share of their cores busy are limited by them
_FULL = 0.85
#: workers that are in tasks for less than this share of their time are limited by the supply of work
_IDLE = 0.6
#: a task that is on a core for less than this share of its time waits for something
_ON_CORE = 0.7
#: from this share of the work on it matters that functions hold the interpreter lock; below the next it no longer does; from the
#: last on they are what tasks wait for
_FUNCTIONS, _FEW_FUNCTIONS, _MOSTLY = 0.2, 0.1, 0.5
#: if the GIL is always held, its process uses at least this many cores
_LOCKED = 0.6
#: tasks that have no core for this share of the time in which they are not on one lack cores, and do not wait
_QUEUED = 0.5
#: cores that a feeder next to a training loop needs to be worth its own
_FEEDER_CORES = 4
#: loads that must agree before anything moves, and that a move is judged by
_AGREE = 2
#: what a move must gain to stay; what it may lose where it was made for another reason
_GAIN, _LOSS = 1.05, 0.9
#: a loss beyond this is clear; a smaller one may be an accident, and this many loads are examined before work moves back
_CLEAR, _PATIENCE = 0.7, 6
#: a load whose samples cost more or less by this factor is another one
_CHANGED = 1.5
#: what was tried in vain is tried again after this many seconds of waiting, and each time after twice as many
_AGAIN_S = 60.0

#: workers slow the consumer if its steps take this much longer next to busy ones
_IN_THE_WAY = 0.05
#: workers that are busy for this share of their time are enough for a consumer that does not wait
_ENOUGH = 0.75
#: what a process must gain that is there to give way to the consumer; and fewer workers, which cost nothing
_WORTH, _SAME = 1.02, 0.99
#: ways to give way: another process does the work, or fewer workers do
FEEDER, FEWER = "feeder", "fewer"

#: threads of all processes together, where more than cores are wanted
MOST_THREADS = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """The workers that run tasks: a number of processes with `threads` threads each; 0: threads of this process."""

    processes: int
    threads: int

    @property
    def workers(self) -> int:
        return max(1, self.processes) * self.threads

    def __str__(self) -> str:
        threads = counted(self.threads, "thread")
        if not self.processes:
            return threads
        processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
        return processes if self.threads == 1 else f"{processes} of {threads}"


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured while some batches were handed out; times in seconds."""

    elapsed_s: float
    waited_s: float  # of that, the consumer waited for a batch
    samples: int  # handed out
    task_s: float  # in tasks, over all workers
    cpu_s: float  # of that, on a core
    function_s: float  # of the time in tasks, in Python functions and whatever else needs the interpreter
    process_s: float  # time on a core of this whole process
    held_by: str = "Python functions"  # what took most of `function_s`
    queued_s: float = 0.0  # in which its threads were ready to run and had no core, where that is known
    draws: bool = False  # whether a function draws from a generator that all threads of its process share
    slowed: float | None = None  # how much longer the consumer's steps take next to busy workers: 0.3 is 30 %; None: unknown

    @property
    def rate(self) -> float:
        return self.samples / self.elapsed_s

    @property
    def wait_share(self) -> float:
        return self.waited_s / self.elapsed_s

    @property
    def on_core(self) -> float:
        return self.cpu_s / self.task_s if self.task_s else 1.0

    @property
    def function_share(self) -> float:
        return self.function_s / self.task_s if self.task_s else 0.0

    @property
    def sample_cpu_s(self) -> float:
        return self.cpu_s / max(1, self.samples)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to run tasks from now on, and why."""

    setting: Setting
    reason: str
    gain: float = 0.0  # the rate must rise by this factor; 0: the choice stays in any case
    gives_way: str = ""  # to a consumer that does not wait; how: FEEDER or FEWER


@dataclass(frozen=True, slots=True)
class _Trial:
    """A move that is judged: what ran before, and how fast."""

    before: Setting
    rate: float
    gain: float
    gives_way: str = ""


class AutoPolicy:
    """Decides from one load after another.

    The caller that carries out a choice reports `moved` when it runs, or `refused` if it cannot.
    """

    def __init__(self, cores: int, threads: int, *, beside_device: bool = False, fixed: bool = False) -> None:
        """With `fixed` the number of workers stays, and each process has one: only whether they are threads is to be decided."""
        self.setting = self._home = Setting(0, threads)
        self.reason = "one worker for each core" if cores > 1 else "this process has one core"
        if threads > cores:
            self.reason = f"one worker for each core, and {threads - cores} more because reads wait for a network"
        if fixed and cores > 1:
            self.reason = "threads start at once and need no hand-over; processes follow if threads hold each other up"
        self._cores, self._fixed = cores, fixed
        self._processes = True  # whether there can be any
        self._beside_device = beside_device and cores >= _FEEDER_CORES
        self._agreed: list[Load] = []  # loads that ask for the same
        self._wished: Setting | None = None
        self._trial: _Trial | None = None
        self._gave_way: tuple[Setting, str] | None = None  # what ran before work gave way to the consumer, and how it did
        self._in_vain: set[str] = set()  # ways to give way that gained nothing, with samples that cost what the next line says
        self._way_cpu_s = 0.0
        self._judged: list[Load] = []  # loads since a move
        self._elsewhere = 0  # of these, in which the consumer did not wait and took fewer samples
        self._skip = 0
        self._seconds = 0.0  # in which the consumer waited for what it had
        self._failed: dict[Setting, tuple[float, float]] = {}  # when it may be tried again, and after how long that was
        self._sample_cpu_s = 0.0  # of the load that these were tried with
        self.settled = cores == 1  # whether nothing is going to move soon

    @property
    def doubts(self) -> bool:
        """Whether it would move if the next load agrees: then it is worth while to look closely."""
        return self._wished is not None

    @property
    def may_move(self) -> bool:
        """Whether anything else than the threads it began with could be chosen."""
        return self._cores > 1

    def first(self) -> Choice | None:
        """What to have running as soon as it can be, before anything is measured."""
        if not self._beside_device:
            return None
        return Choice(Setting(1, self._cores - 1), "the training loop needs the interpreter and a core", _LOSS)

    def see(self, load: Load) -> Choice | None:
        """Take in a load; returns what to move to, if anything."""
        if not self.may_move or load.elapsed_s <= 0 or not load.samples:
            return None
        if self._skip:
            self._skip -= 1  # half of it belongs to what ran before
            return None
        if load.wait_share >= _CALM:
            self._seconds += load.elapsed_s
        return self._judge(load) if self._trial is not None else self._look(load)

    def moved(self, choice: Choice) -> None:
        """The choice runs."""
        rate = _rate(self._agreed)
        if choice.gain and rate:
            self._trial = _Trial(self.setting, rate, choice.gain, choice.gives_way)
        self._gave_way = None
        if choice.gives_way and self._agreed:
            self._gave_way, self._way_cpu_s = (self.setting, choice.gives_way), self._agreed[-1].sample_cpu_s
        self.setting, self.reason = choice.setting, choice.reason
        self._agreed, self._judged, self._wished, self._skip, self._elsewhere = [], [], None, 1, 0
        self.settled = self._trial is None

    def refused(self, choice: Choice, why: str) -> None:
        """The choice is not possible, and neither it nor similar ones are made again."""
        self._processes = self._processes and not choice.setting.processes
        self._failed[choice.setting] = math.inf, math.inf
        self._agreed, self._wished = [], None
        self.reason = f"{choice.setting} could not be used: {why}"
        self.settled = True

    def _judge(self, load: Load) -> Choice | None:
        """Whether what is on trial stays."""
        trial = self._trial
        assert trial is not None
        calm = load.wait_share < _CALM
        if calm and not trial.gives_way and load.rate < trial.rate:
            # It was busy elsewhere, with a validation say, and that tells nothing; unless it stays so.
            self._elsewhere += 1
            if self._elsewhere < _PATIENCE:
                return None
        self._judged.append(load)
        rate = _rate(self._judged)
        gains, late = rate >= trial.gain * trial.rate, len(self._judged) >= _PATIENCE
        stays = gains and calm if trial.gives_way else gains or calm
        lost = rate < _CLEAR * trial.rate
        if trial.gives_way:
            if calm and not late and not lost:
                return None
        elif not calm and (len(self._judged) < _AGREE or not (stays or lost or late)):
            return None
        self._trial, self.settled = None, True
        self._sample_cpu_s = load.sample_cpu_s
        told = f"{rate:,.0f} samples/s instead of {trial.rate:,.0f}"
        if stays:
            self.reason = f"{self.reason}; {told}"
            return None
        _, waited_s = self._failed.get(self.setting, (0.0, _AGAIN_S / 2))
        self._failed[self.setting] = self._seconds + 2 * waited_s, 2 * waited_s
        self._in_vain |= {trial.gives_way} - {""}
        return Choice(trial.before, f"{self.setting} gave {told}")

    def _look(self, load: Load) -> Choice | None:
        choices = self._give_way(load) if load.wait_share < _CALM else self._wishes(load)
        choice = next((choice for choice in choices if self._may(choice.setting, load)), None)
        if choice is None:
            self.settled = self.settled or bool(self._agreed) or load.wait_share < _CALM
            self._agreed, self._wished = [load], None
            return None
        if choice.setting != self._wished:
            self._agreed, self._wished = [], choice.setting
        self._agreed.append(load)
        return choice if len(self._agreed) >= _AGREE else None

    def _may(self, setting: Setting, load: Load) -> bool:
        """Whether a setting was not tried in vain with a load like this one, not long ago."""
        if setting not in self._failed:
            return self._processes or not setting.processes
        again_s, _ = self._failed[setting]
        low, high = sorted((load.sample_cpu_s, self._sample_cpu_s))
        if again_s < math.inf and high > _CHANGED * low:
            del self._failed[setting]
            return True
        return self._seconds >= again_s

    def _give_way(self, load: Load) -> Iterator[Choice]:
        """What might be less in the way of a consumer that does not wait, the likeliest first."""
        if load.slowed is None or load.slowed < _IN_THE_WAY or self._fixed:
            return
        now, why = self.setting, f"the training loop's steps took {load.slowed:.0%} longer while workers are busy"
        low, high = sorted((load.sample_cpu_s, self._way_cpu_s))
        if high > _CHANGED * low:
            self._in_vain = set()
        step = max(1, self._cores // 8)  # so that loads agree about it
        needed = step * max(1, math.ceil(load.task_s / load.elapsed_s / _ENOUGH / step))
        if not now.processes and self._cores >= _FEEDER_CORES and FEEDER not in self._in_vain:
            yield Choice(Setting(1, min(needed, self._cores - 1)), f"{why}: it gets an interpreter of its own", _WORTH, FEEDER)
        if now.processes < 2 and needed < now.workers and FEWER not in self._in_vain:
            yield Choice(Setting(now.processes, needed), f"{why}: {counted(needed, 'worker')} can do the work", _SAME, FEWER)

    def _wishes(self, load: Load) -> Iterator[Choice]:
        """What might help a consumer that waits, the likeliest first."""
        now, cores = self.setting, self._cores
        if self._gave_way is not None and load.task_s >= _FULL * now.workers * load.elapsed_s:
            before, how = self._gave_way
            self._in_vain.add(how)
            yield Choice(before, f"the training loop waited again for {now}")
        used, own = load.cpu_s / load.elapsed_s, load.process_s / load.elapsed_s
        if now.processes > 1 and load.function_share < _FEW_FUNCTIONS and not load.draws:
            yield Choice(self._home, f"functions take only {load.function_share:.0%} of the work by now", _LOSS)
        if (used + own if now.processes else max(used, own)) >= _FULL * min(now.workers, cores):
            if now.workers > cores and not now.processes:
                yield Choice(self._home, "tasks no longer wait, and more threads than cores only take turns", _LOSS)
            return
        if load.task_s < _IDLE * now.workers * load.elapsed_s:
            return
        remedies = [*self._other_interpreters(load), *self._more_threads(load)]
        # Where the lock is free part of the time, more threads help first; when they have used it up, others follow.
        yield from remedies if self._locked(load) >= _FULL or load.draws else reversed(remedies)

    def _locked(self, load: Load) -> float:
        """The share of the time in which an interpreter that runs tasks is in use. Who holds its lock may be without a core."""
        if self.setting.processes:
            return load.cpu_s / load.elapsed_s / self.setting.processes
        return (load.process_s + load.queued_s) / load.elapsed_s

    def _other_interpreters(self, load: Load) -> Iterator[Choice]:
        """Processes, for functions that one interpreter is not enough for, or that others keep from it."""
        now, cores, locked = self.setting, self._cores, self._locked(load) >= _LOCKED
        if now.processes < 2 and (load.draws or (locked and load.function_share >= _FUNCTIONS)):
            why = f"{load.held_by} take {load.function_share:.0%} of the work and hold the interpreter lock"
            why = "Python functions draw from a generator that threads share" if load.draws else why
            used = f"{load.cpu_s / load.elapsed_s:.1f} of {cores} cores were used"
            processes = now.workers if self._fixed else cores
            yield Choice(Setting(processes, max(1, now.workers // processes)), f"{why}: {used}", _GAIN)
        native = load.function_share < _FUNCTIONS and load.on_core < _ON_CORE
        if not now.processes and locked and native and cores >= _FEEDER_CORES and not self._fixed:
            yield Choice(Setting(1, cores), "Python code elsewhere in this program holds the interpreter lock", _GAIN)

    def _more_threads(self, load: Load) -> Iterator[Choice]:
        """So many that cores have something to do while others wait: in powers of two, so that loads agree about it."""
        now, why = self.setting, f"tasks are on a core for {load.on_core:.0%} of their time and wait for the rest"
        locked = load.draws or (load.function_share >= _MOSTLY and self._locked(load) >= _FULL)
        short_of_cores = load.queued_s >= _QUEUED * (load.task_s - load.cpu_s)
        if load.on_core >= _ON_CORE or locked or short_of_cores or self._fixed:
            return
        times = 1 << math.ceil(math.log2(1 / max(load.on_core, 1e-3)))
        most = min(MOST_THREADS, self._cores * times)
        setting = Setting(now.processes, most // max(1, now.processes))
        if setting.workers > now.workers:
            yield Choice(setting, why, _GAIN)


def _rate(loads: Sequence[Load]) -> float:
    """Samples per second over several loads."""
    return sum(load.samples for load in loads) / sum(load.elapsed_s for load in loads) if loads else 0.0
