"""Makes a task from its name and the configuration: loads, prepares and splits the data."""

from pathlib import Path

import numpy as np
import torch

from gammafl.config.optimizers import LocalOptimizer
from gammafl.config.schema import Input, RunConfig
from gammafl.core.errors import require
from gammafl.federated.task import SampleFacts, Split, Task
from gammafl.methods.files import is_file
from gammafl.tasks.augment import crop_and_flip
from gammafl.tasks.data.catalogue import Say
from gammafl.tasks.data.images import Array, load_images
from gammafl.tasks.language import SIZES, build_language_task
from gammafl.tasks.models import INITIALISERS, MODELS
from gammafl.tasks.registry import preset_named
from gammafl.tasks.samples import ImageSamples, ImageShards, Normaliser
from gammafl.tasks.torch_task import TorchTask
from gammafl.tasks.user_task import own_task


def build_task(config: RunConfig, split: Split, data_dir: Path | None, say: Say) -> Task:
    """The task of `config`. `split` divides its training samples among the clients."""
    own = is_file(config.task)
    require(not own or data_dir is None, f"{config.task} brings its own data; leave out --data-dir")
    task = own_task(config) if own else _preset_task(config, split, data_dir, say)
    if isinstance(task, TorchTask):
        task.evaluation_samples = config.evaluation.samples
        task.fast = task.fast and config.fast
        _train_as_configured(task, config)
        if (config.device, config.precision) != ("cpu", "f32"):  # otherwise the file's own choice is kept
            device = task.place.device if config.device == "cpu" else config.device
            task.put_on(device or "cpu", task.precision if config.precision == "f32" else config.precision)
    else:
        here = (config.device, config.precision) == ("cpu", "f32")
        require(here, f"device and precision are for tasks that gf.torch_task makes; {config.task} trains by itself")
        plain = config.optimizer == LocalOptimizer() and config.proximal == 0
        require(plain, f"optimizer and proximal are for tasks that gf.torch_task makes; {config.task} trains by itself")
        require(
            config.sampler == "replacement",
            f"sampler = {config.sampler!r} is for tasks that gf.torch_task makes; {config.task} draws its own batches",
        )
    return task


def _train_as_configured(task: TorchTask, config: RunConfig) -> None:
    """Sets the local optimiser and μ of the configuration. Otherwise those of the file are kept."""
    if config.optimizer == LocalOptimizer() and config.proximal == 0:
        return
    given = {"optimizer": (task.optimizer, config.optimizer, None), "proximal": (task.proximal, config.proximal, 0)}
    for name, (in_file, wanted, unset) in given.items():
        require(
            in_file in (unset, wanted),
            f"{config.task} sets {name}= itself; leave out --set {name}, or let the file pass {name}=config.{name}",
        )
    task.train_by(config.optimizer, config.proximal)


def _preset_task(config: RunConfig, split: Split, data_dir: Path | None, say: Say) -> TorchTask:
    preset = preset_named(config.task)
    if preset.model in SIZES:
        return build_language_task(config, preset.model, preset.dataset, split, data_dir, say)
    data = load_images(preset.dataset, data_dir, say)
    normalise = normaliser(config.input, channels=data.train.shape[1])
    train = to_32(data.train, config.input)
    test = ImageSamples(to_32(data.test, config.input), data.test_labels, normalise)
    augment = crop_and_flip if config.input.augment else None
    shards = split(SampleFacts(data.train_labels, data.train_groups))
    clients = ImageShards(train, data.train_labels, normalise, shards, augment)
    model = MODELS[preset.model](int(data.train_labels.max()) + 1)
    initialise = INITIALISERS[config.initialisation]
    return TorchTask(config.task, model, clients, test, config.batch_size, initialise=initialise)


def to_32(images: Array, settings: Input) -> Array:
    """28×28 → 32×32, by interpolation or with a border of zeros, in uint8. 32×32 images do not change."""
    if images.shape[-1] == 32:
        return images
    if settings.resize == "pad":
        return np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    resized = np.empty((*images.shape[:2], 32, 32), np.uint8)
    for start in range(0, len(images), 5000):
        part = torch.from_numpy(images[start : start + 5000].astype(np.float32))
        larger = torch.nn.functional.interpolate(part, size=(32, 32), mode="bilinear", align_corners=False)
        resized[start : start + 5000] = larger.round().to(torch.uint8).numpy()
    return resized


def normaliser(settings: Input, channels: int) -> Normaliser:
    """uint8 → (x/255 − mean)/std, for each channel."""
    require(
        len(settings.mean) == len(settings.std) == channels,
        f"input.mean and input.std need {channels} number(s), one per channel",
    )
    mean, std = np.array(settings.mean, np.float32), np.array(settings.std, np.float32)
    return Normaliser(np.float32(1) / (np.float32(255) * std), mean / std)
