"""`gf.simulate`: trains your own model on your own data, with all clients in this process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gammafl.core.errors import InputError, not_installed, require

try:
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
except ModuleNotFoundError:
    raise not_installed("torch", "train") from None

from gammafl.config.budget import Budget, Budgets
from gammafl.config.layers import flat
from gammafl.config.link import Link
from gammafl.config.link_trace import LinkTrace, as_links
from gammafl.config.optimizers import ServerOptimizer
from gammafl.config.optimizers import server_optimizer as as_server_optimizer
from gammafl.config.privacy import Privacy
from gammafl.config.schema import EvaluationSettings, Faults, Precision, Sampler
from gammafl.config.simulation import SimulationConfig, make_simulation_config
from gammafl.core.aggregate import Weighting
from gammafl.core.compressors import Compressor
from gammafl.core.inputs import is_number
from gammafl.core.method import Method
from gammafl.core.stepsizes import Stepsize, as_stepsize
from gammafl.federated import server
from gammafl.federated.callbacks import Callback, Watch
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.models import flatten
from gammafl.federated.plan import NO_SERVER_OPTIMIZER, Plan
from gammafl.federated.records import RoundRecord, Summary
from gammafl.files.tensor_files import DAMAGED, Tensors
from gammafl.methods.registry import label_of, resolve
from gammafl.methods.ways import way_down
from gammafl.report.charts import drawn
from gammafl.report.run_chart import run_chart
from gammafl.runs.directory import RunDirectory
from gammafl.runs.identity import with_digests, without_addresses
from gammafl.runs.progress import Logged, Progress, show_progress
from gammafl.runs.runner import Names, Resources, run, session
from gammafl.runs.stores import InMemory, Store, on_disk
from gammafl.tasks.flat_module import Buffers
from gammafl.tasks.metrics import MetricChoice
from gammafl.tasks.objective import Loss
from gammafl.tasks.optimizers import OptimizerChoice
from gammafl.tasks.torch_task import TorchTask
from gammafl.tasks.user_task import torch_task


@dataclass(frozen=True, repr=False)
class Result:
    """What `simulate` returns: the summary, a record of each round, and the trained modules.

    When it is printed, or at the end of a notebook cell, it shows the most important figures. `plot()` draws a chart.
    """

    summary: Summary
    rounds: list[RoundRecord]
    model: nn.Module
    averaged_model: nn.Module | None

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {value}' for name, value in self.summary.essentials().items())})"

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()

    def plot(self) -> Any:
        """The metric against iterations and against the bytes sent, as an Altair chart.

        A notebook shows the chart. `plot().save("run.png")` writes it to a file and needs no network.
        """
        return drawn(run_chart(self.summary, self.rounds))


def simulate(
    model: nn.Module,
    client_datasets: Sequence[Dataset[Any] | DataLoader[Any]],
    test_dataset: Dataset[Any] | DataLoader[Any],
    *,
    method: str | Method | Compressor | Callable[..., Method] = "gamma-fedht",
    keep: float = 0.01,
    downlink: str | Method | Compressor | Callable[..., Method] = "full",
    link: str | Path | Link | LinkTrace | None = None,
    budget: str | Budget | Mapping[int | str, str | Budget] | Sequence[str | Budget | None] | None = None,
    # training
    stepsize: Stepsize | float,
    iterations: int,
    local_steps: int = 5,
    participation: float = 0.5,
    batch_size: int | None = None,
    sampler: Sampler = "replacement",
    loss: Loss | None = None,
    optimizer: OptimizerChoice = None,
    proximal: float = 0.0,
    server_optimizer: str | Mapping[str, Any] | ServerOptimizer | None = None,
    buffers: Buffers = "refuse",
    weights: Weighting = "paper",
    averaging: Literal["tail", "exponential", "none"] = "tail",
    seed: int = 0,
    fast: bool = True,
    device: Any = None,
    precision: Precision = "f32",
    # evaluation
    metric: MetricChoice = "accuracy",
    higher_is_better: bool = True,
    evaluate_every: int = 20,
    # what goes wrong, and what is refused
    faults: Mapping[str, float | bool] | Faults | None = None,
    limits: Limits = NO_LIMITS,
    privacy: Privacy | None = None,
    # where it runs and what is shown; no result depends on these
    out: str | Path | None = None,
    name: str = "custom",
    threads: int | None = None,
    residual_memory_mb: float | None = None,
    device_memory_mb: float | None = None,
    checkpoint_seconds: float = 10.0,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Trains a copy of `model` on `client_datasets`, one for each client, by Algorithm 1.

    model           the module; a copy of it is trained
    client_datasets  a Dataset or DataLoader for each client
    test_dataset    the Dataset or DataLoader for evaluations
    method          a value such as `gf.top_k(keep=0.01)`, or a name or expression such as "top-k"
    keep            the kept fraction, for a method that is given by name
    downlink        what the server sends of the model: all of it ("full"), the values that have changed since the
                    client's version ("changes"), or what a method such as `gf.gamma_fedht_q(keep=0.04)` keeps of the
                    difference to the client's version
    link            the clients' network links, for a virtual clock: "1 Mbit/s up, 10 Mbit/s down, 50 ms", `gf.Link(…)`,
                    or a file with a link for each client. It gives `link_seconds` in records and summary, and no other
                    result changes
    budget          how much clients may send: "64 kB/upload" limits each upload, "20 MB/run" all uploads together, and
                    "2 kB/s, 30 s/round" is a rate. By client: `{"all": "20 MB/run", 3: "1 kB/upload"}`, or a list. See
                    docs/budgets.md
    stepsize        γ_t: a number, or a function of t such as `gf.InverseDecay(50, 500)`
    iterations      T, a multiple of `local_steps`
    local_steps     E, the local steps of a client in a round
    participation   the share of the clients that a round picks
    batch_size      samples in a local step; by default that of the DataLoaders, or 50
    sampler         how batches are drawn: at random in each step ("replacement"), or in passes over a client's samples,
                    each in a new order ("epochs") or all in the same order ("epochs-fixed")
    loss            a function of (outputs, targets) that returns the mean over a batch; by default cross-entropy, or
                    the model's own loss if samples are dicts
    optimizer       the optimizer of local training: a class such as `torch.optim.AdamW`, a function of (params, lr), or
                    a name with settings such as "sgd:momentum=0.9"; by default plain SGD. Each client gets a new one in
                    each round. Its learning rate is γ_t
    proximal        FedProx's μ: μ/2·‖x − x_round‖² is added to the local objective
    server_optimizer  "momentum", "adam", "yogi" or "adagrad", with settings such as "adam:lr=0.01"; by default none
    buffers         running statistics, as in batch normalisation: "travel" sends them with the weights, "local"
                    switches them off, and "refuse" is an error if the model has some
    weights         the weight of an upload: "paper" is (n/|S|)·p_i, "normalized" divides that by its sum
    averaging       how the server's model is averaged: over the last tenth of the rounds ("tail"), "exponential" or
                    "none"
    seed            fixes all random numbers of the run
    fast            use compiled loops instead of torch's for models that have them (docs/convolutions.md). Results
                    differ only by rounding
    device          the device of model, samples and local training, such as "cuda"; by default the model's. Only what
                    is sent crosses to the host (docs/devices.md)
    precision       the numbers of local steps: "f32", or with torch's autocast "bf16" or "f16"
    metric          what evaluations measure: "accuracy", "perplexity", "loss", a function of (outputs, targets), or a
                    dict with several of them by name
    higher_is_better  whether higher is better, for a metric that is your own function
    evaluate_every  rounds between two evaluations
    faults          what goes wrong with a picked client, with which probability: `{"lost": 0.1, "absent": 0.05}`. The
                    kinds are the keys of `faults` in `gammafl tasks logistic-mini`
    limits          the limits of one upload: `gf.Limits(entries=1000, norm=5.0)`
    privacy         differential privacy of whole clients: `gf.Privacy(clip=1.0, noise=1.0)`, see docs/privacy.md. Then
                    every upload has the same weight, whatever `weights` says
    out             a run directory. The same call continues a run that was interrupted there, and returns the result of
                    a finished one. A call with other arguments is refused. Without `out`, everything is in memory
    name            the name of the task in summaries and reports
    threads         how many clients train at the same time; by default one for each core
    residual_memory_mb  MB of memory for the clients' residuals; further ones are on disk
    device_memory_mb    MB of the device's memory for residuals; further ones are on the host
    checkpoint_seconds  seconds between two checkpoints in `out`; 0: after every round
    progress        show a progress bar, or lines if there is no terminal
    callbacks       objects that follow the run and may end it early: `[gf.EarlyStopping("accuracy")]`,
                    `[gf.TensorBoard("logs")]`, or your own (docs/trackers.md)

    Returns a `Result` with `summary`, `rounds` (a record of each), `model` and `averaged_model`.

    Data sets that draw random numbers should draw them from torch, whose state the seed fixes. docs/training.md says
    more about optimizers, metrics and the forms of samples.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    >>> data = [TensorDataset(part, (part.sum(1) > 0).long()) for part in x.split(60)]
    >>> result = simulate(torch.nn.Linear(4, 2), data[:4], data[4], stepsize=0.1, iterations=100)
    >>> result.summary.rounds, len(result.rounds), result.rounds[-1].evaluated
    (20, 20, True)
    """
    resources = _resources(threads, residual_memory_mb, checkpoint_seconds, device_memory_mb)
    require(isinstance(limits, Limits), f"limits must be gf.Limits(…), got {limits!r}")
    private = privacy is None or isinstance(privacy, Privacy)
    require(private, f"privacy must be gf.Privacy(clip=…, noise=…), got {privacy!r}")
    require(isinstance(name, str), f"name must be text, got {name!r}")
    shown = show_progress() if progress else nullcontext(Logged())
    with _words_of_python(), session(resources) as began, shown as seen:
        task = torch_task(
            model,
            client_datasets,
            test_dataset,
            batch_size,
            loss=loss,
            metric=metric,
            higher_is_better=higher_is_better,
            optimizer=optimizer,
            proximal=proximal,
            buffers=buffers,
            name=name,
            fast=fast,
            device=device,
            precision=precision,
        )
        chosen, gamma = resolve(method, keep=keep), as_stepsize(stepsize)
        of_server = as_server_optimizer(server_optimizer)
        down = way_down(downlink, keep=keep)
        links = None if link is None else as_links(link)
        budgets = Budgets.of(budget, len(task.clients))
        arguments = {
            "task": name,
            "method": without_addresses(str(chosen)),
            "method_parts": without_addresses(repr(chosen)),
            "downlink": without_addresses(down if isinstance(down, str) else repr(down)),
            "link": None if links is None else str(links),
            "budget": budgets.table(),
            "stepsize": without_addresses(repr(gamma)),
            "seed": seed,
            "iterations": iterations,
            "local_steps": local_steps,
            "clients": len(task.clients),
            "participation": participation,
            "batch_size": task.batch_size,
            "sampler": sampler,
            "weights": weights,
            "loss": without_addresses(task.objective.text),
            "optimizer": without_addresses(task.optimizer_text),
            "proximal": proximal,
            "server_optimizer": of_server.kind if of_server == NO_SERVER_OPTIMIZER else str(of_server),
            "metric": without_addresses(task.metrics.text),
            "higher_is_better": higher_is_better,
            "buffers": buffers,
            "fast": fast,
            "device": "cpu" if task.place.is_host else str(task.place.device),
            "precision": precision,
            "averaging": averaging,
            "evaluate_every": evaluate_every,
            "faults": {} if faults is None else faults,
            "limits": {key: value for key, value in asdict(limits).items() if value is not None},
            "privacy": {} if privacy is None else asdict(privacy),
        }
        plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in arguments.items()}
        config = make_simulation_config(plain)
        plan = replace(
            _plan(config, task, chosen, gamma, limits, of_server),
            downlink=down,
            link=links,
            budgets=budgets,
            privacy=privacy,
        )
        label = f"{label_of(config.method)} seed {config.seed}"
        names = Names(config.task, config.method, label, flat(config.model_dump()))
        work = _Work(task, plan, names, resources, seen, Watch(callbacks).callbacks)
        return work.in_memory(began) if out is None else work.in_directory(began, Path(out), config)


@dataclass(frozen=True)
class _Work:
    """A simulation that is about to run."""

    task: TorchTask
    plan: Plan
    names: Names
    resources: Resources
    progress: Progress
    callbacks: Sequence[Callback]

    def in_memory(self, began: float) -> Result:
        return self._run(InMemory(), began)

    def in_directory(self, began: float, path: Path, arguments: SimulationConfig) -> Result:
        """Continues the run in `path`, if there is one. A finished run is only read."""
        directory, config = RunDirectory(path), with_digests(arguments, self.plan, self.task)
        if directory.holds(config) and (summary := directory.summary()) is not None:
            averaged = None if summary.averaged is None else self._stored(directory, directory.averaged_model_file)
            return Result(summary, directory.records(), self._stored(directory, directory.model_file), averaged)
        with on_disk(directory, config, self.plan, self.progress.say) as store:
            return self._run(store, began)

    def _run(self, store: Store, began: float) -> Result:
        finished = run(self.plan, self.names, store, self.resources, self.progress, began, self.callbacks)
        state = finished.state
        averaged = None if state.average is None else self.task.module_with(state.average)
        return Result(finished.summary, finished.records, self.task.module_with(state.held), averaged)

    def _stored(self, directory: RunDirectory, path: Path) -> nn.Module:
        try:
            return self.task.module_with(flatten(dict(Tensors(path)), self.plan.layout, path.name))
        except (*DAMAGED, OSError) as error:
            advice = f"remove {directory.summary_file} and make the same call again"
            raise InputError(f"{path} can't be used ({error}); {advice}") from None


def _plan(
    config: SimulationConfig,
    task: TorchTask,
    method: Method,
    stepsize: Stepsize,
    limits: Limits,
    server_optimizer: ServerOptimizer,
) -> Plan:
    return Plan(
        task=task,
        method=method,
        stepsize=stepsize,
        iterations=config.iterations,
        local_steps=config.local_steps,
        participants=config.participants,
        seed=config.seed,
        weights=config.weights,
        averaging=server.AVERAGINGS[config.averaging],
        evaluation=EvaluationSettings(every=config.evaluate_every),
        faults=config.faults,
        upload_limits=limits,
        sampler=config.sampler,
        server_optimizer=server_optimizer,
    )


def _resources(threads: Any, residual_memory_mb: Any, checkpoint_seconds: Any, device_memory_mb: Any) -> Resources:
    whole = threads is None or (isinstance(threads, int) and not isinstance(threads, bool) and threads >= 1)
    require(whole, f"threads must be a whole number of at least 1, got {threads!r}")
    named = {"residual_memory_mb": residual_memory_mb, "device_memory_mb": device_memory_mb}
    for name, value in {**named, "checkpoint_seconds": checkpoint_seconds}.items():
        fits = (name in named and value is None) or (is_number(value) and value >= 0)
        require(fits, f"{name} must be a number of at least 0, got {value!r}")
    return Resources(threads, residual_memory_mb, checkpoint_seconds, device_memory_mb)


@contextmanager
def _words_of_python() -> Iterator[None]:
    """Replaces options of the command line in the advice of an error by the arguments of a call."""
    try:
        yield
    except InputError as error:
        text = str(error).replace("go on with --resume", "call it again").replace("--out", "out=")
        if text == str(error):
            raise
        raise type(error)(text) from None
