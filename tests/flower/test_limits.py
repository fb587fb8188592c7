"""What one upload may be can be limited; honest clients stay within the limits, others are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict

import gammafl as gf
import gammafl.flower
from gammafl.core.arrays import Vector
from gammafl.core.wire import encode
from gammafl.federated.norms import WARM_UP
from tests.flower.books import computed, remembered
from tests.flower.problem import from_record, run, to_record
from tests.flower.spoil import BAD_NODE, with_payload
from tests.problems import METHODS, Quadratic

METHOD = METHODS["top-k"]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (gammafl.flower.Limits(payload_bytes=13), "no upload fits into 13 bytes"),
        (gammafl.flower.Limits(weight=5), "from 2⁻⁵³ to 5"),
    ],
    ids=str,
)
def test_what_an_upload_may_be_can_be_limited(limits: gammafl.flower.Limits, reason: str, tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match=reason):
        run(tmp_path, 2, method=METHOD, fraction_train=1.0, limits=limits)


@pytest.mark.parametrize(
    "limits",
    [gammafl.flower.Limits(entries=2), gammafl.flower.Limits(norm=0.5), gammafl.flower.Limits(payload_bytes=19)],
    ids=str,
)
@pytest.mark.parametrize("name", ["fedavg", "top-k", "stc"])
def test_honest_clients_stay_within_the_limits_and_keep_the_rest(
    name: str, limits: gammafl.flower.Limits, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """Others are refused. What was too much for one upload is sent with the next ones."""
    task = Quadratic()

    def too_much(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_payload(encode(gf.SparseUpdate(50, None, np.full(50, 7.0))))(reply.content)
        return reply

    chosen, _, _ = run(tmp_path, 6, task, too_much, method=METHODS[name], fraction_train=1.0, limits=limits)
    for record in chosen.history:
        assert record["clients"] == ["0", "1", "3"]
        assert "allowed" in record["refused"][str(BAD_NODE)]
    rest = remembered(tmp_path, chosen)
    for client in ("0", "1", "3"):
        np.testing.assert_allclose(applied[client] + rest[client], computed(task, client), atol=1e-5)


def test_a_whole_model_keeps_to_the_norm_as_an_update_does(tmp_path: Path) -> None:
    """Or a client would only have to leave out the mod."""

    def whole(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id in (BAD_NODE, 100):
            far = np.float32(100 if message.metadata.dst_node_id == BAD_NODE else 0.01)
            model = from_record(message.content["arrays"]) + far  # type: ignore[arg-type]
            arrays, metrics = to_record(Quadratic(), model), reply.content["metrics"]
            reply.content = RecordDict({"arrays": arrays, "metrics": metrics})
        return reply

    limits = gammafl.flower.Limits(norm=1.0)
    settings: dict[str, Any] = {"method": METHODS["fedavg"], "fraction_train": 1.0, "accept_whole": True}
    chosen, _, _ = run(tmp_path, 2, fate=whole, limits=limits, **settings)
    for record in chosen.history:
        assert record["whole"] == 1
        assert "but 1 is allowed" in record["refused"][str(BAD_NODE)]


@pytest.mark.parametrize("name", ["fedavg", "top-k", "stc"])
def test_a_learnt_bound_keeps_a_hostile_client_out_from_the_first_round_on(
    name: str, tmp_path: Path, applied: dict[str, Vector]
) -> None:
    """In the warm-up by the round's own median, later by the bound, within which honest clients stay."""
    task = Quadratic()

    def too_much(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            with_payload(encode(gf.SparseUpdate(50, None, np.full(50, 700.0))))(reply.content)
        return reply

    limits = gammafl.flower.Limits(learnt_norm=1.5)
    chosen, _, _ = run(tmp_path, 9, task, too_much, method=METHODS[name], fraction_train=1.0, limits=limits)
    reasons = ["the median of the round"] * WARM_UP + ["is allowed"] * (9 - WARM_UP)
    for record, reason in zip(chosen.history, reasons, strict=True):
        assert record["clients"] == ["0", "1", "3"]
        assert reason in record["refused"][str(BAD_NODE)]
        assert ("norm_limit" in record) == (reason == "is allowed")
    rest = remembered(tmp_path, chosen)
    for client in ("0", "1", "3"):
        np.testing.assert_allclose(applied[client] + rest[client], computed(task, client), atol=1e-5)
