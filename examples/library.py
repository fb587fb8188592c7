"""gammafl as a library, from a vector to bytes and back, and one's own model in the simulator.

python examples/library.py
"""

import numpy as np
import torch
from torch.utils.data import TensorDataset

import gammafl as gf

# --- Just the compressor: a vector in, bytes out -------------------------------------------------------

dim = 235_690
method = gf.gamma_fedht(keep=0.001)
schedule = gf.Schedule(gf.InverseDecay(100, 1000), iterations=40_000)  # γ_t = 100 / (t + 1000)
scale = method.scale(dim, schedule)  # λ_0, calibrated for `keep` as in the paper
memory = method.memory.client(method, dim)
rng = np.random.default_rng(0)

for t in range(5, 30, 5):
    delta = (0.01 * rng.standard_normal(dim)).astype(np.float32)
    update = memory.propose(delta, schedule.moment(t, scale))
    payload = gf.encode(update)
    print(f"t = {t:2}: {len(update):4} of {dim} entries in {len(payload)} bytes")
assert gf.decode(payload) == update

# --- One's own model and data in the simulator ----------------------------------------------------------

torch.manual_seed(0)
centres = torch.randn(3, 20)


def cloud(labels: torch.Tensor) -> TensorDataset:
    return TensorDataset(centres[labels] + torch.randn(len(labels), 20), labels)


clients = [cloud(torch.full((100,), i % 3)) for i in range(9)]  # each client knows one class only
result = gf.simulate(
    torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3)),
    clients,
    cloud(torch.arange(600) % 3),
    method=gf.gamma_fedht(keep=0.05),
    stepsize=gf.InverseDecay(50, 500),
    iterations=1000,
)
summary = result.summary
print(
    f"accuracy {summary['final']:.1%}, of the averaged model {summary['averaged']:.1%}, "
    f"{summary['dense_bytes_per_client'] / summary['uplink_bytes_per_client']:.0f}× less than dense"
)
