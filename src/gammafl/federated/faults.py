"""The simulator with random faults, drawn from the seed (`faults` in the configuration)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gammafl import seeds
from gammafl.config.schema import Faults
from gammafl.core.errors import DivergedError
from gammafl.core.moment import Moment
from gammafl.federated.client import Upload
from gammafl.federated.downlink import Downlink
from gammafl.federated.in_process import InProcess
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.task import LocalUpdate
from gammafl.federated.timing import Timing

NEVER_ARRIVES = ("killed", "lost", "late")
"""Faults that look the same to the client: the server did not confirm the upload."""


class Faulty(InProcess):
    """Carries messages as `InProcess` does, but clients and the network fail."""

    def exchange(
        self,
        participants: Sequence[int],
        downlink: Downlink,
        round_number: int,
        moment: Moment,
        most: Limits = NO_LIMITS,
    ) -> Iterator[Upload]:
        rng = seeds.generator(self.plan.seed, "faults", round_number)
        self._fates = dict(zip(participants, draw(self.plan.faults, len(participants), rng), strict=True))
        present = [client for client in participants if self._fates[client] != "absent"]
        for client in present:
            if self._fates[client] == "forgetful":
                downlink.forget(client)
        for upload in super().exchange(present, downlink, round_number, moment, most):
            yield from _carried(upload, self._fates[upload.client], rng)

    def upload(self, client: int, local: LocalUpdate, round_number: int) -> list[Upload]:
        if self._fates[client] != "not_finite":
            return super().upload(client, local, round_number)
        spoilt = local.delta.copy()
        spoilt[:1] = np.nan
        try:
            return super().upload(client, replace(local, delta=spoilt, largest=None), round_number)
        except DivergedError:
            return []  # error feedback refuses such an update, and changes nothing


def draw(faults: Faults, count: int, rng: np.random.Generator) -> list[str]:
    """The fault of each of `count` clients; "" for none."""
    names = ["", *faults.shares]
    chosen = rng.choice(len(names), size=count, p=[1 - faults.total, *faults.shares.values()])
    return [names[i] for i in chosen]


def _carried(upload: Upload, fate: str, rng: np.random.Generator) -> list[Upload]:
    """What the server gets of an upload."""
    if fate in NEVER_ARRIVES:
        return []
    if fate == "repeated":
        return [upload, upload]
    if fate == "corrupted":
        payload = bytearray(upload.payload)
        payload[rng.integers(len(payload))] ^= 1 << int(rng.integers(8))
        return [upload._replace(payload=bytes(payload))]
    return [upload]


def carrier(plan: Plan, residuals: ResidualStore, timing: Timing | None = None) -> InProcess:
    """The carrier for the plan: `Faulty` if it has faults."""
    return (Faulty if plan.faults.total else InProcess)(plan, residuals, timing)
