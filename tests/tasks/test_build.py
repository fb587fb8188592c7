"""Tasks as the paper has them: parameter counts, inputs, initialisation."""

import numpy as np
import pytest
import torch
from torch import nn

import gammafl as gf
from gammafl.config.layers import make_config
from gammafl.config.schema import Input
from gammafl.federated.task import layout_of
from gammafl.tasks.build import build_task, normaliser, to_32
from gammafl.tasks.data.images import fashion_mnist_mini
from gammafl.tasks.registry import PRESETS
from gammafl.tasks.torch_task import TorchTask

CONFIG = make_config(PRESETS["logistic-mini"].settings, {"task": "logistic-mini", "method": "fedavg"})


@pytest.fixture(scope="module")
def task() -> TorchTask:
    built = build_task(CONFIG, lambda facts: np.array_split(np.arange(len(facts)), 10), None, print)
    assert isinstance(built, TorchTask)
    return built


def test_the_logistic_model_has_the_papers_10250_parameters(task: TorchTask) -> None:
    assert layout_of(task).dim == 10_250
    assert layout_of(task).sizes == (10_240, 10)


def test_the_defaults_are_the_papers() -> None:
    config = make_config(PRESETS["logistic-fmnist"].settings, {"task": "logistic-fmnist", "method": "gamma-fedht"})
    assert (config.iterations, config.local_steps, config.batch_size) == (20_000, 5, 50)
    assert (config.clients, config.participants, config.keep) == (10, 5, 0.01)
    assert config.resolved_method() == gf.gamma_fedht(keep=0.01, level="paper")
    assert config.rounds * 4 * 10_250 == 164_000_000  # 156.40 MiB in Table III


def test_the_papers_calibration_is_for_the_papers_tasks_unless_one_says_otherwise() -> None:
    preset = {**PRESETS["logistic-mini"].settings, "task": "logistic-mini"}
    own = {"task": "mytask.py:build", "iterations": 10}
    for method in ("gamma-fedht", "gamma-fedht-q", "ht"):
        assert isinstance(make_config(preset, {"method": method}).resolved_method().level, gf.PaperLevel)
        assert isinstance(make_config(own, {"method": method}).resolved_method().level, gf.UploadLevel)
        for task in (preset, own):
            for level, kind in {"upload": gf.UploadLevel, "paper": gf.PaperLevel}.items():
                chosen = make_config(task, {"method": f"{method}:level={level}"}).resolved_method()
                assert isinstance(chosen.level, kind)


def test_bilinear_resizing_is_torchs_own_and_padding_adds_a_border() -> None:
    images = fashion_mnist_mini().train[:50]
    expected = nn.functional.interpolate(torch.from_numpy(images).float(), size=(32, 32), mode="bilinear")
    np.testing.assert_allclose(to_32(images, Input()), expected, atol=0.5)
    padded = to_32(images, Input(resize="pad"))
    np.testing.assert_array_equal(padded[:, :, 2:-2, 2:-2], images)
    assert padded.sum() == images.sum()


def test_inputs_are_normalised_channel_by_channel() -> None:
    images = torch.arange(2 * 3 * 4, dtype=torch.uint8).view(2, 3, 2, 2)
    settings = Input(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (settings.mean, settings.std))
    rows = np.array([1, 0, 1])
    torch.testing.assert_close(normaliser(settings, 3)(images.numpy(), rows), ((images / 255 - mean) / std)[rows])
    with pytest.raises(gf.InputError, match="3 number"):
        normaliser(Input(), 3)


def test_a_seed_fixes_the_initial_model_and_training_does_not_change_it(task: TorchTask) -> None:
    first = task.initial_model(np.random.default_rng(1))
    other = task.initial_model(np.random.default_rng(2))
    list(task.train([0, 1], first, np.full(3, 0.1, np.float32), [np.random.default_rng(i) for i in (0, 1)]))
    assert task.initial_model(np.random.default_rng(1)).tobytes() == first.tobytes()
    assert other.tobytes() != first.tobytes()


def test_clients_do_not_see_each_others_training(task: TorchTask) -> None:
    """Training two clients in one call gives what training each alone gives."""
    model, steps = task.initial_model(np.random.default_rng(1)), np.full(5, 0.1, np.float32)
    together = [u.delta.copy() for u in task.train([3, 4], model, steps, [np.random.default_rng(i) for i in (3, 4)])]
    alone = [next(task.train([i], model, steps, [np.random.default_rng(i)])).delta.copy() for i in (3, 4)]
    for one, two in zip(together, alone, strict=True):
        assert one.tobytes() == two.tobytes()


def test_evaluation_is_over_the_whole_test_set_whatever_the_batches(
    task: TorchTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = task.initial_model(np.random.default_rng(1))
    whole = task.evaluate(model)
    monkeypatch.setattr(task, "evaluation_batch", 333)
    parts = task.evaluate(model)
    assert parts.metric == whole.metric
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)
