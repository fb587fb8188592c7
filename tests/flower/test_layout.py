"""Models as Flower carries them, flat and back."""

import json

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from torch import nn

import gammafl as gf
from gammafl.files.reading import checked
from gammafl.flower.layout import Layout, LayoutFacts


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_a_torch_model_survives_the_way_to_a_vector_and_back() -> None:
    record = ArrayRecord(network().state_dict())
    layout = Layout.of(record)
    again = layout.record(layout.flatten(record, "it"))
    assert list(again) == list(record)
    for name in record:
        np.testing.assert_array_equal(again[name].numpy(), record[name].numpy())
    network().load_state_dict(again.to_torch_state_dict(), strict=True)


def test_running_statistics_come_last_and_are_sent_whole_and_counters_not_at_all() -> None:
    layout = Layout.of(ArrayRecord(network().state_dict()))
    assert list(layout.shapes)[-2:] == ["1.running_mean", "1.running_var"]
    assert layout.whole == 8
    assert layout.compressed_sizes == (12, 4, 4, 4, 8, 2)
    assert list(layout.fixed) == ["1.num_batches_tracked"]
    assert layout.dim == 3 * 4 + 4 + 4 + 4 + 4 * 2 + 2 + 8


def test_a_layout_survives_a_file() -> None:
    record = ArrayRecord(network().state_dict())
    layout = Layout.of(record)
    data = {name: array.data for name, array in layout.fixed.items()}
    again = Layout.from_facts(checked(LayoutFacts, json.loads(json.dumps(layout.facts()))), data)
    assert again.record(layout.flatten(record, "it")) == layout.record(layout.flatten(record, "it"))


def test_a_model_that_does_not_fit_is_refused_by_the_name_of_the_tensor() -> None:
    layout = Layout.of(ArrayRecord(network().state_dict()))
    state = network().state_dict()
    for wrong in (
        {name: value for name, value in state.items() if name != "2.bias"},
        {**state, "2.bias": torch.zeros(3)},
        {**state, "2.bias": torch.zeros(2).long()},
    ):
        with pytest.raises(gf.InputError, match=r"the reply: tensor '2.bias' must be float32 of shape \(2,\)"):
            layout.flatten(ArrayRecord(wrong), "the reply")
    with pytest.raises(gf.InputError, match="does not have: more"):
        layout.flatten(ArrayRecord({**state, "more": torch.zeros(1)}), "the reply")


@pytest.mark.parametrize("precision", ["float16", "float64"])
def test_other_precisions_are_carried_as_float32_and_come_back_as_they_were(precision: str) -> None:
    record = ArrayRecord({"weight": Array(np.linspace(-1, 1, 7, dtype=precision))})
    layout = Layout.of(record)
    again = layout.record(layout.flatten(record, "it"))
    assert again["weight"].dtype == precision
    np.testing.assert_allclose(again["weight"].numpy(), record["weight"].numpy(), rtol=1e-7)


def test_tensors_that_can_not_be_averaged_are_refused() -> None:
    with pytest.raises(gf.InputError, match="send it as float32"):
        Layout.of(ArrayRecord({"weight": Array(np.zeros(3, np.complex64))}))
    with pytest.raises(gf.InputError, match="no tensors of floating-point"):
        Layout.of(ArrayRecord({"counter": Array(np.zeros(3, np.int64))}))
