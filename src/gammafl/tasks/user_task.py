"""One's own task, in a file outside of the package: `gammafl run mytask.py:build`.

The file has a function that makes a task for a configuration, most simply by `gf.torch_task`, and may have a
table SETTINGS of the settings it starts from. docs/own-task.md has a complete example.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gammafl.config.schema import RunConfig
from gammafl.core.errors import not_installed, require
from gammafl.methods.files import function_in_file, module_of

if TYPE_CHECKING:  # the command line looks at names without loading torch
    from torch import nn
    from torch.utils.data import Dataset

    from gammafl.federated.task import Task
    from gammafl.tasks.fast.replicas import Loss
    from gammafl.tasks.flat_module import Buffers
    from gammafl.tasks.torch_task import Metric, TorchTask


def own_settings(name: str) -> dict[str, Any]:
    """The file's SETTINGS; none where it has none."""
    settings = getattr(module_of(name), "SETTINGS", {})
    require(isinstance(settings, dict), f"SETTINGS of {name} must be a table, got {type(settings).__name__}")
    return dict(settings)


def own_task(config: RunConfig) -> "Task":
    """The task that the file's function makes for `config`."""
    task: Task = function_in_file(config.task)(config)
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
    task = TorchTask(name, model, clients, test, batch_size, loss or cross_entropy, metric=metric, buffers=buffers)
    task.check_precision()
    return task
