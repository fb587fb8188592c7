"""A user's own task, in a file outside the package: `gammafl run mytask.py:build`.

The file has a function that makes a task for a configuration, most simply with `gf.torch_task`. It may have a table
SETTINGS with the task's settings. docs/own-task.md has a complete example.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gammafl.config.schema import Precision, RunConfig
from gammafl.core.errors import not_installed, require
from gammafl.methods.files import function_in_file, module_of

if TYPE_CHECKING:  # the command line checks names without importing torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    from gammafl.federated.task import Task
    from gammafl.tasks.flat_module import Buffers
    from gammafl.tasks.metrics import MetricChoice
    from gammafl.tasks.objective import Loss
    from gammafl.tasks.optimizers import OptimizerChoice
    from gammafl.tasks.torch_task import TorchTask


def own_settings(name: str) -> dict[str, Any]:
    """SETTINGS in the file; empty if it has none."""
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
        f"{config.task} made a task of {held} clients, but {config.clients} are asked for; make config.clients of"
        f" them, or put SETTINGS = {{'clients': {held}}} into the file",
    )
    return task


def torch_task(
    model: "nn.Module",
    client_datasets: "Sequence[Dataset[Any] | DataLoader[Any]]",
    test_dataset: "Dataset[Any] | DataLoader[Any]",
    batch_size: int | None = None,
    *,
    loss: "Loss | None" = None,
    metric: "MetricChoice" = "accuracy",
    higher_is_better: bool = True,
    optimizer: "OptimizerChoice" = None,
    proximal: float = 0.0,
    buffers: "Buffers" = "refuse",
    name: str = "own",
    fast: bool = True,
    device: Any = None,
    precision: Precision = "f32",
) -> "TorchTask":
    """A task from any module and any torch data sets or loaders.

    model              a torch module
    client_datasets    a data set or a DataLoader for each client
    test_dataset       a data set or a DataLoader for the evaluation
    batch_size         samples in a local step; by default that of the DataLoaders, or 50
    loss               a function of (outputs, targets), a mean over the batch; by default cross-entropy, or for samples
                       that are dicts the model's own: `model(**batch).loss`
    metric             "accuracy", "perplexity", "loss", a function of (outputs, targets) of the whole test set, or a
                       table of several by name. The first one is the task's metric
    higher_is_better   whether more is better, if the first metric is your own function
    optimizer          for local training, a new one for each client and round: a class such as `torch.optim.AdamW`, a
                       function of (params, lr), or a name with settings such as "sgd:momentum=0.9"; by default plain
                       SGD
    proximal           FedProx's μ: μ/2·‖x − x_round‖² is added to the local loss
    buffers            for running statistics, such as those of batch normalisation: "travel" sends them with the
                       weights, "local" switches them off
    name               the task's name, for tables and files
    fast               use compiled loops instead of torch for models that have such loops: the same up to rounding
    device             the device of model, samples and local training, such as "cuda"; by default the model's
    precision          of local steps: "f32", or with torch's autocast "bf16" or "f16"

    Returns a task for `gf.simulate`, or for a function in your own file.

    >>> import torch
    >>> data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.arange(8) % 2)
    >>> task = torch_task(torch.nn.Linear(3, 2), [data, data], data, 4, optimizer="adamw:weight_decay=0.01")
    >>> task.client_sizes
    [8, 8]
    """
    try:
        from torch.nn.functional import cross_entropy
    except ModuleNotFoundError:
        raise not_installed("torch", "train") from None

    from gammafl.tasks.own_data import own_data
    from gammafl.tasks.torch_task import TorchTask

    data = own_data(client_datasets, test_dataset, default_loss=loss is None)
    task = TorchTask(
        name,
        model,
        data.clients,
        data.test,
        data.chosen_batch(batch_size),
        loss or (None if data.are_dicts else cross_entropy),
        metric=metric,
        evaluation_batch=data.test_batch or 250,
        buffers=buffers,
        higher_is_better=higher_is_better,
        fast=fast,
    )
    task.put_on(device, precision)
    if optimizer is not None or proximal:
        task.train_by(optimizer, proximal)
    task.check_precision()
    return task
