"""One's own task, in a file outside of the package: `gammafl run mytask.py:build`.

The file has a function that makes a task for a configuration, most simply by `gf.torch_task`, and may have a
table SETTINGS of the settings it starts from. docs/own-task.md has a complete example.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gammafl.config import RunConfig
from gammafl.core.errors import InputError, not_installed, require

if TYPE_CHECKING:  # the command line looks at names without loading torch
    from torch import nn
    from torch.utils.data import Dataset

    from gammafl.tasks.base import Task
    from gammafl.tasks.flat_module import Buffers
    from gammafl.tasks.replicas import Loss
    from gammafl.tasks.torch_task import Metric, TorchTask


def is_own(name: str) -> bool:
    """Whether a task's name means a function in a file."""
    return ".py:" in name


def own_settings(name: str) -> dict[str, Any]:
    """The file's SETTINGS; none where it has none."""
    settings = getattr(_module(name), "SETTINGS", {})
    require(isinstance(settings, dict), f"SETTINGS of {name} must be a table, got {type(settings).__name__}")
    return dict(settings)


def own_digest(name: str) -> str:
    """Tells another version of the file apart: a run of the one is no run of the other."""
    return hashlib.sha256(_file(name).read_bytes()).hexdigest()


def own_task(config: RunConfig) -> "Task":
    """The task that the file's function makes for `config`."""
    function = getattr(_module(config.task), config.task.partition(".py:")[2], None)
    if not callable(function):
        raise InputError(f"{config.task}: the file has no function of that name")
    task: Task = function(config)
    sizes = getattr(task, "client_sizes", None)
    require(sizes is not None, f"{config.task} must return a task, such as gf.torch_task(…), got {type(task).__name__}")
    held = len(task.client_sizes)
    require(
        held == config.clients,
        f"{config.task} made a task of {held} clients where {config.clients} are asked for; make config.clients of"
        f" them, or put SETTINGS = {{'clients': {held}}} into the file",
    )
    return task


def torch_task(
    model: "nn.Module",
    client_datasets: "Sequence[Dataset[Any]]",
    test_dataset: "Dataset[Any]",
    batch_size: int,
    *,
    loss: "Loss | None" = None,
    metric: "Metric" = "accuracy",
    buffers: "Buffers" = "refuse",
    name: str = "own",
) -> "TorchTask":
    """A task from any module and any torch data sets, one a client. `loss` is cross-entropy by default.

    `buffers` says what becomes of running statistics, such as those of batch normalisation: "travel" sends them
    with the weights, "local" switches them off.
    """
    try:
        from torch.nn.functional import cross_entropy
    except ModuleNotFoundError:
        raise not_installed("torch", "train") from None

    from gammafl.tasks.samples import all_samples
    from gammafl.tasks.torch_task import TorchTask

    clients, test = all_samples(client_datasets, test_dataset)
    return TorchTask(name, model, clients, test, batch_size, loss or cross_entropy, metric=metric, buffers=buffers)


def _module(name: str) -> ModuleType:
    path = _file(name)
    if (known := sys.modules.get(_module_name(path))) is not None:
        return known
    spec = importlib.util.spec_from_file_location(_module_name(path), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.append(str(path.parent))  # what stands beside the file can be imported by it
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[spec.name]
        if isinstance(error, SyntaxError):
            raise InputError(f"{error.filename}, line {error.lineno}: {error.msg}") from None
        if isinstance(error, ImportError):
            raise InputError(f"{path} can't be imported: {error}") from None
        raise
    return module


def _file(name: str) -> Path:
    path = Path(name.partition(".py:")[0] + ".py").resolve()
    require(path.is_file(), f"there is no file {path} for the task {name}")
    return path


def _module_name(path: Path) -> str:
    return f"gammafl_own_{path.stem}_{abs(hash(str(path)))}"
