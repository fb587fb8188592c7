"""Problems whose constants are known: clients f_i(x) = Σ_j a_ij·h(x_j − c_ij), with noise of known size.

    strongly-convex   h(z) = z²/2          f_i is L-smooth and μ-strongly convex with L = max a_ij, μ = min a_ij
    non-convex        h(z) = z²/(1 + z²)   f_i is L-smooth with L = 2·max a_ij, and flat far away

Curvatures a_ij and centres c_ij differ between clients, so that local steps drift apart. No problem of this kind bounds
G and Γ_n everywhere. So they are measured during the run: the smallest constants for which the assumptions held.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.core.theory import Constants
from gammafl.federated.task import Evaluation, LocalUpdate

Kind = Literal["strongly-convex", "non-convex"]
CLIENTS, PARTICIPANTS, LOCAL_STEPS, DIM = 10, 5, 5, 100
CONVEXITY, LARGEST = 0.2, 1.0
NOISE = 1.0
"""σ: the noise of a gradient has E‖ξ‖² = σ²."""


class Separable:
    """The task. Its metric is f(x) − f* if f* is known, else ‖∇f(x)‖²."""

    higher_is_better = False

    def __init__(self, kind: Kind) -> None:
        rng = np.random.default_rng(20_250_101)
        self.kind = self.name = kind
        self.metric = "error" if kind == "strongly-convex" else "squared gradient"
        self.client_sizes = [1] * CLIENTS
        self.tensors = {"x": (DIM,)}
        self.statistics: dict[str, tuple[int, ...]] = {}
        self.curvature = rng.uniform(CONVEXITY, LARGEST, (CLIENTS, DIM)).astype(np.float32)
        self.curvature[0, :2] = CONVEXITY, LARGEST  # so that μ and L are attained
        self.centre = rng.standard_normal((CLIENTS, DIM)).astype(np.float32)
        self.optimum = (self.curvature * self.centre).sum(0) / self.curvature.sum(0)
        self.largest_gradient = 0.0
        self.largest_difference = 0.0

    def fingerprint(self) -> int:
        return 0

    def initial_model(self, rng: np.random.Generator) -> Vector:
        return np.full(DIM, 2.0, np.float32)

    def slope(self, z: Vector) -> Vector:
        """h′."""
        return z if self.kind == "strongly-convex" else 2 * z / (1 + z * z) ** 2

    def value(self, x: NDArray[np.floating]) -> float:
        """n·f(x)."""
        z = x.astype(np.float64) - self.centre
        return float((self.curvature * (z * z / 2 if self.kind == "strongly-convex" else z * z / (1 + z * z))).sum())

    def gradients(self, x: Vector) -> Vector:
        """∇f_i(x); row i is that of client i."""
        return np.asarray(self.curvature * self.slope(x - self.centre))

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        scale = np.float32(NOISE / np.sqrt(DIM))
        for client, rng in zip(clients, rngs, strict=True):
            x, curvature, centre = model.copy(), self.curvature[client], self.centre[client]
            noise = scale * rng.standard_normal((len(stepsizes), DIM), np.float32)
            for stepsize, xi in zip(stepsizes, noise, strict=True):
                gradient = curvature * self.slope(x - centre)
                self.largest_gradient = max(self.largest_gradient, float(gradient @ gradient))
                x -= stepsize * (gradient + xi)
            yield LocalUpdate(model - x, 0.0)

    def evaluate(self, model: Vector) -> Evaluation:
        """Both fields are f(x) − f* for the convex problem, else ‖∇f(x)‖². f is the mean of the f_i."""
        if self.kind == "strongly-convex":
            z = model.astype(np.float64) - self.optimum
            error = float((self.curvature.mean(0) * z * z).sum() / 2)
            return Evaluation(error, error)
        each = self.gradients(model)
        mean = each.mean(0)
        self.largest_difference = max(self.largest_difference, float(np.square(each - mean).sum(1).max()))
        squared = float(mean.astype(np.float64) @ mean)
        return Evaluation(squared, squared)

    def constants(self) -> Constants:
        """The constants, with the G and Γ_n measured so far."""
        convex = self.kind == "strongly-convex"
        return Constants(
            smoothness=LARGEST if convex else 2 * LARGEST,
            convexity=CONVEXITY if convex else 0.0,
            noise=NOISE,
            gradient_bound=float(np.sqrt(self.largest_gradient + NOISE**2)),
            heterogeneity=self._gamma_c() if convex else self.largest_difference,
            shares=[1 / CLIENTS] * CLIENTS,
            participants=PARTICIPANTS,
            local_steps=LOCAL_STEPS,
        )

    def _gamma_c(self) -> float:
        """Γ_c = f* − Σ p_i f_i*, where every f_i* is 0."""
        return self.value(self.optimum) / CLIENTS
