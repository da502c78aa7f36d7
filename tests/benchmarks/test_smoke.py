"""The benchmarks run, and say what they found in one line of JSON. No figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from http.client import HTTPConnection
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from ..device.emulated_gpu import Emulation
from ..device.emulated_gpu import driver_library as driver_library
from ..device.emulated_gpu import emulated as emulated
from ..support import jpeg_bytes

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

#: the options of each, and the figures it must give
WITH = {
    "accuracy": (),
    "cache": ("--images",),
    "cifar_tfrecord": ("--peers",),
    "cifar_train": ("--peers",),
    "drop_in": ("--images",),
    "first_batch": ("--images", "--peers"),
    "gil": ("--images",),
    "imagenet_augment": ("--images", "--peers"),
    "imagenet_train": ("--images", "--peers"),
    "jpeg_kernel": ("--images", "--peers"),
    "order": (),
    "overhead": ("--peers",),
    "pixels": ("--images",),
    "python_map": ("--images", "--peers", "--parts"),
    "ray_overhead": ("--images",),
    "records": ("--images", "--peers", "--sizes"),
    "remote": ("--images", "--caches", "--stores"),
    "pool": ("--images",),
    "remote_workers": ("--images", "--peers"),
    "scaling": ("--images",),
    "simulate": ("--images", "--workers"),
    "soak": (),
    "tail": ("--peers", "--kinds"),
    "tools": ("--images", "--only"),
    "tracing": ("--images",),
    "train_gpu": ("--images",),
    "tuning": ("--images", "--pipelines", "--choices"),
    "meters": ("--images",),
    "verdicts": ("--images", "--plants"),
    "worker_memory": ("--peers",),
}
FIGURES = {
    "accuracy": {"accuracy", "deviation", "difference", "standard_error"},
    "cache": {"images_per_s", "over_none", "first_epoch_over_none"},
    "meters": {"pipelines"},
    "cifar_tfrecord": {"order", "shuffled", "strings"},
    "cifar_train": {"recipe", "rotated"},
    "drop_in": {"per_s", "over_torch", "first_batch_s", "targets"},
    "first_batch": {"from_process_start_s", "from_loader_s", "second", "targets"},
    "gil": {"tasks", "training"},
    "imagenet_augment": {"training", "operations"},
    "imagenet_train": {"images_per_s", "stoker_over", "targets", "peak_pss_mb"},
    "jpeg_kernel": {"us_per_image", "own_over", "targets", "index_percent"},
    "order": {"positions_per_s", "memory"},
    "overhead": {"records_per_s", "stoker_over"},
    "pixels": {"difference_of_255"},
    "python_map": {"hand-over", "targets"},
    "ray_overhead": {"workers", "pipelines", "tasks"},
    "records": {"sizes"},
    "remote": {"images_per_s", "of_local", "of_local_by_cpu", "work"},
    "pool": {"cpu_us_per_image", "four_of_one", "four_of_alone", "three_beside", "targets"},
    "remote_workers": {"images_per_s", "of_local", "hand_over_gb_per_s", "hand_over_of_others", "targets"},
    "scaling": {"stoker", "kernel"},
    "simulate": {"cost_us", "check", "clusters"},
    "soak": {"records", "images", "batches_kept"},
    "tail": {"kinds", "targets"},
    "tools": {"commands", "killed_and_restarted"},
    "tracing": {"pipelines", "written"},
    "train_gpu": {"delivered", "models", "targets"},
    "verdicts": {"plants", "targets"},
    "tuning": {"pipelines", "targets"},
    "worker_memory": {"total_mb", "per_worker_mb", "beyond_interpreter_mb", "targets"},
}
#: what the options of a test are given; some of many stand for all, because each is a process that takes its time to start
VALUES = {
    "--pipelines": "mixed",
    "--choices": "processes",
    "--parts": "hand-over",
    "--kinds": "sleeping",
    "--workers": "1",
    "--peers": "none",
    "--caches": "none,cold",
    "--stores": "http",
    "--only": "tar cat,tar split",
    "--sizes": "110KB",
    "--plants": "nothing wrong",
}


@pytest.fixture(scope="module")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    for number in range(16):
        (folder / f"{number:02}.jpg").write_bytes(jpeg_bytes(96, 80, seed=number))
    return folder


@pytest.fixture
def benchmarks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def missing_thing() -> Any:
    raise RuntimeError("there is no such thing")


def run(name: str, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


#: those that take long to start
SLOW = {
    "accuracy", "cifar_train", "drop_in", "first_batch", "pool", "python_map", "ray_overhead", "records", "remote_workers",
    "scaling", "tools", "train_gpu", "tuning", "worker_memory",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.faults, pytest.mark.thorough] if name in SLOW else []) for name in WITH]
)
def test_a_benchmark_prints_one_line_of_json(name: str, few_images: Path) -> None:
    values = {"--images": str(few_images), **VALUES}
    out = run(name, "--quick", *(word for option in WITH[name] for word in (option, values[option])))
    assert out.count("\n") == 1
    result = json.loads(out)
    assert result["benchmark"] == name
    assert FIGURES[name] <= set(result)


def test_every_benchmark_is_tested_and_listed_in_run_all(benchmarks_on_path: None) -> None:
    import run_all

    own = {"clients", "data", "measure", "ours", "resnet", "run_all", "s3_server", "shards", "slow_server", "workloads"}
    found = {path.stem for path in BENCHMARKS.glob("*.py")} - own - {"gpu_decode"}  # which needs a GPU, and is tested below
    assert found == set(WITH) == set(run_all.BENCHMARKS)


def test_a_benchmark_that_needs_a_gpu_says_so_and_exits_with_2() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu_decode.py"), "--quick"], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "gpu_decode: there is no GPU that torch could use; it needs a GPU and a torch for CUDA" in done.stderr


@pytest.mark.faults
@pytest.mark.thorough
def test_what_is_decoded_on_a_gpu_is_compared_byte_by_byte(
    benchmarks_on_path: None, emulated: Emulation, few_images: Path, tmp_path: Path
) -> None:
    """The parts that need no clock, on an emulated device."""
    import gpu_decode
    import ours

    options = gpu_decode.parse(["--quick", "--generated", "9", "--changes", "40", "--threads", "1,2"])
    folder = gpu_decode.copied(few_images, tmp_path / "photographs", 2)
    found = gpu_decode.exact(options, folder, ours.pack(few_images, tmp_path / "tar", seek=True, labels=True), tmp_path)
    assert len(found) == 6 and all(not each["wrong"] and each["pictures_on_gpu"] for each in found.values())
    hurt = gpu_decode.damage(options, folder)
    assert hurt["different"] == 0 and hurt["on_gpu"] and hurt["given_back"] and hurt["errors"]
    asked = gpu_decode.targets({"exact": found, "damage": hurt})
    assert len(asked) == 7 and all(met for _, _, met in asked.values())
    emulated.blame(2)
    blind = gpu_decode.Pair(64 << 20)
    picture = gpu_decode._small(0)
    blind.see([picture] * 6, [b""] * 6)  # without an index the CPU decodes all of them
    assert blind.figures() == {"compared": 6, "different": 0, "on_gpu": 0, "given_back": 0, "errors": 0}


def test_every_part_that_runs_on_a_gpu_prints_its_figures_and_one_that_fails_loses_none(
    benchmarks_on_path: None, emulated: Emulation, few_images: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Whatever a clock says, on an emulated device; nothing is trained."""
    import gpu_decode
    import train_gpu

    def broken(options: Any, folder: Path) -> Any:
        raise RuntimeError("nvJPEG does not work here")

    monkeypatch.setattr(gpu_decode, "why_not", lambda: None)
    monkeypatch.setattr(gpu_decode, "nvjpeg", broken)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "emulated")
    monkeypatch.setattr(train_gpu, "finish", lambda device: None)
    monkeypatch.setattr(train_gpu, "make_step", lambda name, options: train_gpu.only_look)
    monkeypatch.setattr(train_gpu, "synthetic", lambda options: nullcontext(train_gpu.Feed(repeat((None, None)), lambda: None)))
    for name in ("synchronize", "reset_peak_memory_stats", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(f"torch.cuda.{name}", lambda: 0)
    parts = "nvjpeg,delivered,training,stages,memory"
    words = ["--quick", "--images", str(few_images), "--threads", "2", "--parts", parts]
    assert gpu_decode.main([*words, "--pinned-memory", "1MB", "--device-memory", "100MB"]) == 1

    *told, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [each["part"] for each in told] == ["nvjpeg", "delivered", "training", "training", "training", "stages", "memory"]
    assert last["nvjpeg"] == {"failed": "RuntimeError: nvJPEG does not work here"}
    assert set(last["delivered"]["images_per_s"]) == {
        f"{source}, {place}, 2 threads" for source in ("files", "indexed") for place in ("kept", "cuda", "cpu")
    }
    feeds = {"files, kept", "files, kept auto", "files, auto", "files, cpu"}
    for model in ("resnet18", "resnet50"):
        assert set(last["training"][model]["of_synthetic"]) == feeds
        assert last["training"][model]["time_decoding"] == {"files, kept": None, "files, kept auto": None}, "without a GPU"
    assert set(last["stages"]) == {"step 16, 4 pictures", "step 4, 4 pictures"}
    kernels = {"stk_unstuff_ranges", "stk_weigh_axes", "stk_decode_segments", "stk_transform_blocks", "stk_finish_rows"}
    assert all(kernels < set(found) for found in last["stages"].values())
    assert set(last["memory"]["budgets"]) == {"64MB", "256MB", "1GB"}
    assert all(found["bytes_per_picture"] > 1000 for found in last["memory"]["budgets"].values())
    assert "on the GPU" in last["memory"]["explain"]
    asked = {f"{model} from {feed}, of synthetic" for model in ("resnet18", "resnet50") for feed in feeds - {"files, cpu"}}
    assert set(last["targets"]) == asked | {f"{source}, 2 threads, crops/s" for source in ("files", "indexed")}


def test_time_in_which_kernels_run_counts_once(benchmarks_on_path: None) -> None:
    import gpu_decode

    assert gpu_decode.covered([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.75)]) == 4.0
    assert gpu_decode.covered([]) == 0.0


def test_run_all_passes_on_the_lines_of_those_it_is_told_to_run() -> None:
    lines = run("run_all", "order", "--quick").splitlines()
    assert [json.loads(line)["benchmark"] for line in lines] == ["order"]


def test_the_kernel_alone_makes_the_batches_of_the_loader(benchmarks_on_path: None, few_images: Path) -> None:
    import ours

    pipeline = ours.image_pipeline(few_images, 16)
    with pipeline.loader() as loader:
        expected = np.concatenate([batch["image"] for batch, _ in zip(loader, range(2))])
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        hands = [stack.enter_context(ours.Hand(few_images, 16)) for _ in range(2)]
        kernel = ours.Kernel(pipeline, 16, pool, hands)
        assert kernel.take(2) == 32
        np.testing.assert_array_equal(kernel.out, expected)


def test_generated_pictures_are_as_large_as_photographs(benchmarks_on_path: None, tmp_path: Path) -> None:
    import data

    data.generate(tmp_path / "made", 12)
    sizes = [len(Path(path).read_bytes()) for path in data.paths_of(tmp_path / "made")]
    assert 90_000 < np.mean(sizes) < 130_000


def test_training_is_measured_from_files_and_from_tar_in_one_run(few_images: Path) -> None:
    words = ("--quick", "--images", str(few_images), "--peers", "none", "--from", "tar")
    result = json.loads(run("imagenet_train", *words))
    assert {"stoker", "stoker-tar"} <= set(result["runs"])
    assert result["tar_over_files"] > 0


def test_tar_shards_give_the_batches_of_the_files(benchmarks_on_path: None, few_images: Path, tmp_path: Path) -> None:
    import ours

    pipelines = ours.image_pipeline(few_images, 16), ours.tar_pipeline(ours.pack(few_images, tmp_path), 16)
    with pipelines[0].loader() as files, pipelines[1].loader() as shards:
        for (image,), (jpg,), _ in zip(files, shards, range(2)):
            np.testing.assert_array_equal(image, jpg)


def test_shards_with_seek_indices_give_the_batches_of_the_files(
    benchmarks_on_path: None, few_images: Path, tmp_path: Path
) -> None:
    import ours

    shards = ours.pack_indexed(few_images, tmp_path)
    if shards is None:
        pytest.skip("this Stoker writes no seek indices")
    pipelines = ours.image_pipeline(few_images, 16), ours.tar_pipeline(shards, 16)
    with pipelines[0].loader() as files, pipelines[1].loader() as packed:
        for (image,), (jpg,), _ in zip(files, packed, range(2)):
            np.testing.assert_array_equal(image, jpg)


def test_the_rectangles_given_to_others_are_those_the_kernel_draws(benchmarks_on_path: None, few_images: Path) -> None:
    import jpeg_kernel
    from stoker.kernel import native

    pictures = jpeg_kernel.Pictures.read(sorted(map(str, few_images.glob("*.jpg"))))
    program = jpeg_kernel.lower(jpeg_kernel.OPS, seed=jpeg_kernel.SEED)
    out = np.empty((jpeg_kernel.CHUNK, jpeg_kernel.SIDE, jpeg_kernel.SIDE, 3), np.uint8)
    with native.Decoder() as decoder:
        ours = jpeg_kernel.Ours(program, -1, decoder, out, pictures)
        rows = ours.run(slice(0, 16), epoch=3)
    assert jpeg_kernel.rectangles(program, pictures, 3) == [tuple(view) for view in rows["view"].tolist()]


def test_a_target_says_what_was_got_what_was_asked_for_and_whether_that_is_met(benchmarks_on_path: None) -> None:
    import imagenet_train
    import jpeg_kernel
    from measure import Comparison

    rates = {"own avx2": [4.0, 4.0], "turbo avx2": [2.0, 2.0], "simplejpeg-opencv": [2.5, 2.5]}
    found = jpeg_kernel.targets(jpeg_kernel.over(rates), None)
    assert found == {"own avx2 over simplejpeg-opencv": (1.6, 1.9, False), "own avx2 over turbo avx2": (2.0, 1.35, True)}
    compared = Comparison({"stoker": [30.0], "spdl": [5.0], "dali": [10.0], "ffcv-raw": [90.0]})
    assert imagenet_train.targets(compared) == {
        "best_peer": "dali",
        "targets": {"stoker over the best peer": (3.0, 2.5, True)},
    }


def test_the_models_have_as_many_parameters_as_those_of_the_paper(benchmarks_on_path: None) -> None:
    torch = pytest.importorskip("torch")
    from resnet import resnet

    with torch.device("meta"):
        counts = {name: sum(p.numel() for p in resnet(name, 1000).parameters()) for name in ("resnet18", "resnet50")}
    assert counts == {"resnet18": 11_689_512, "resnet50": 25_557_032}


def test_a_contestant_that_cannot_be_made_says_why(benchmarks_on_path: None) -> None:
    from measure import Contestant, Entry

    with pytest.raises(RuntimeError, match="there is no such thing"), Contestant(Entry("lost", missing_thing, (), 1)) as lost:
        lost.warm_up()


def test_what_a_contestant_hands_out_is_compared_with_what_was_written(benchmarks_on_path: None, tmp_path: Path) -> None:
    import shards

    payloads = shards.Payloads(8, size=100)
    shards.write(payloads, tmp_path, ["tar"])
    assert shards.consume(iter([list(payloads)] * 2), list, tmp_path)(1) == 8
    with pytest.raises(RuntimeError, match="nobody wrote"):
        shards.consume(iter([[b"else"]]), list, tmp_path)(1)


def test_the_slow_server_waits_and_sends_what_was_asked_for(benchmarks_on_path: None, tmp_path: Path) -> None:
    import slow_server

    (tmp_path / "a.bin").write_bytes(bytes(range(200)))
    with slow_server.serving(tmp_path, 0.05) as address:
        request = Request(f"{address}/a.bin", headers={"Range": "bytes=10-19"})
        start = time.monotonic()
        with urlopen(request, timeout=10) as answer:
            assert answer.status == 206
            assert answer.headers["Content-Range"] == "bytes 10-19/200"
            assert answer.read() == bytes(range(10, 20))
        assert time.monotonic() - start > 0.05
        assert slow_server.ask_stats(address)["requests"] == 1


def test_the_server_of_moto_keeps_connections_as_s3_does(benchmarks_on_path: None, tmp_path: Path) -> None:
    """werkzeug's own server closes each, so that every part of an object would begin slowly, on a new one."""
    pytest.importorskip("moto")
    import s3_server
    import slow_server

    (tmp_path / "a.bin").write_bytes(bytes(range(200)))
    signed = {**s3_server._SIGNED, "Range": "bytes=10-19"}
    with s3_server.serving_s3(tmp_path, 0) as address:
        connection = HTTPConnection(address.removeprefix("http://"), timeout=30)
        ports = set()
        for method in ("HEAD", "GET", "GET"):
            connection.request(method, "/bucket/a.bin", headers=signed)
            ports.add(connection.sock.getsockname()[1])
            with connection.getresponse() as answer:
                assert answer.read() == (b"" if method == "HEAD" else bytes(range(10, 20)))
        assert len(ports) == 1
        assert slow_server.ask_stats(address)["requests"] == 3
        connection.close()


def test_servers_of_several_processes_tell_what_all_of_them_did_and_end_together(
    benchmarks_on_path: None, tmp_path: Path
) -> None:
    import slow_server

    (tmp_path / "a.bin").write_bytes(bytes(100_000))
    with slow_server.serving(tmp_path, 0, processes=3) as address:
        for _ in range(7):  # each is a connection of its own
            with urlopen(f"{address}/a.bin", timeout=10) as answer:
                assert len(answer.read()) == 100_000
        stats = slow_server.ask_stats(address)
        assert stats["requests"] == 7 and stats["cpu_s"] > 0
    deadline = time.monotonic() + 10
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            urlopen(address, timeout=1).close()


def test_a_ratio_is_the_median_of_the_rounds_ratios(benchmarks_on_path: None) -> None:
    from measure import ratio

    rounds: Any = ([10.0, 40.0, 90.0], [10.0, 20.0, 30.0])
    assert ratio(*rounds) == 2.0
