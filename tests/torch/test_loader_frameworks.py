"""What frameworks make of the DataLoader: every sample once, and never a loss that nobody is told of."""

from __future__ import annotations

from typing import Any

import pytest
import torch.utils.data as torch_data
from torch.utils.data import DistributedSampler

import stoker
from stoker.errors import ConfigError
from stoker.torch import DataLoader

from .datasets import Draws
from .test_data_loader import epochs, indices

pytestmark = pytest.mark.thorough  # these import much


def test_lightning_makes_the_loader_again_with_a_sampler_for_its_ranks() -> None:
    pytest.importorskip("tests.image.vision")  # without which Lightning cannot import torchvision everywhere
    data = pytest.importorskip("pytorch_lightning.utilities.data")
    loader = DataLoader(Draws(20), 4, shuffle=True, seed=3, lower=False, memory="1GB", executor="inline")
    assert data._is_dataloader_shuffled(loader)
    seen = []
    for rank in range(2):
        again = data._update_dataloader(loader, DistributedSampler(Draws(20), 2, rank, shuffle=True))
        assert type(again) is DataLoader
        assert (again.seed, again.lower, again.memory, again.executor, again.batch_size) == (3, False, "1GB", "inline", 4)
        seen += indices(again)
    assert sorted(seen) == [*range(20)]


def test_accelerate_gives_data_set_and_sampler_to_torchs_loader_and_that_is_said() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    loader = DataLoader(Draws(20), 4, shuffle=True, seed=3)
    with pytest.warns(RuntimeWarning, match=r"accelerator.prepare\(\) takes data set and batch sampler"):
        prepared = accelerator.prepare(loader)
    assert isinstance(prepared, torch_data.DataLoader)
    assert sorted(indices(prepared)) == [*range(20)]
    assert epochs(loader) == epochs(DataLoader(Draws(20), 4, shuffle=True, seed=3)), "and the loader itself is as it was"


@pytest.mark.parametrize("given", [{}, {"shuffle": True}, {"sampler": [3, 1, 2]}], ids=repr)
def test_accelerate_does_not_skip_batches_of_another_order(given: dict[str, Any]) -> None:
    accelerate = pytest.importorskip("accelerate")
    with pytest.raises(ConfigError, match=r"skip_first_batches\(\) would pass .* call loader.skip\(n\)"):
        accelerate.skip_first_batches(DataLoader(Draws(20), 4, **given), 2)


def test_accelerate_is_told_how_a_loader_of_a_pipeline_skips() -> None:
    accelerate = pytest.importorskip("accelerate")
    told = pytest.raises(AttributeError, match=r"'Loader' object has no attribute 'dataset'; .* call loader.skip\(n\)")
    with stoker.arrays(x=[*range(12)]).batch(4).loader() as loader, told:
        accelerate.skip_first_batches(loader, 2)


def test_a_checkpoint_of_torch_takes_the_loader_as_it_is() -> None:
    stateful = pytest.importorskip("torch.distributed.checkpoint.stateful")
    assert isinstance(DataLoader(Draws()), stateful.Stateful)
