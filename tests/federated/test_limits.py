"""A client keeps within the limits of an upload whatever it has to send; a limit that it could not keep is refused."""

import numpy as np
import pytest

import gammafl as gf
from gammafl.federated.limits import SMALLEST_NORM
from tests.methods.catalogue import REGISTERED
from tests.runs.forging import not_for_ever

DIM = 70


@pytest.mark.parametrize("size", [1e-45, 1.0, 1e36])
@pytest.mark.parametrize("text", REGISTERED)
def test_the_smallest_norm_can_be_kept_to_whatever_an_update_is_made_of(text: str, size: float) -> None:
    method, limits = REGISTERED[text], gf.Limits(norm=SMALLEST_NORM)
    server = gf.Server(method, gf.Schedule(0.1, iterations=20), like=DIM, limits=limits)
    client = gf.Client("a", method, like=DIM)
    update = (np.random.default_rng(0).standard_normal(DIM) * size).astype(np.float32)
    with not_for_ever():
        upload = client.encode(update, np.zeros(DIM, np.float32), server.offer("a"))
    assert server.accept("a", upload)


@pytest.mark.parametrize("norm", [1e-45, SMALLEST_NORM / 2])
def test_a_norm_that_whole_numbers_times_a_scale_can_not_keep_to_is_refused(norm: float) -> None:
    with pytest.raises(gf.InputError, match="norm must be at least"):
        gf.Limits(norm=norm)
    with pytest.raises(gf.InputError, match="norm must be at least"):
        gf.Server("top-k", gf.Schedule(0.1, iterations=20), like=DIM, privacy=gf.Privacy(clip=norm, noise=1.0))
