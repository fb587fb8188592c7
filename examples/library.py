"""gammafl as a library: a client and a server without a framework, and your own model in the simulator.

python examples/library.py
"""

import numpy as np
import torch
from torch.utils.data import TensorDataset

import gammafl as gf

# --- One client and one server, without any framework ---------------------------------------------------

dim = 235_690
method = gf.gamma_fedht(keep=0.001)
schedule = gf.Schedule(gf.InverseDecay(100, 1000), iterations=40_000)  # γ_t = 100 / (t + 1000)
server = gf.Server(method, schedule, like=dim, local_steps=5)
client = gf.Client("client-7", method, like=dim)
model, rng = np.zeros(dim, np.float32), np.random.default_rng(0)

for _ in range(5):
    offer = server.offer("client-7")
    trained = model - (0.01 * rng.standard_normal(dim)).astype(np.float32)
    upload = client.encode(model, trained, offer)
    server.accept("client-7", upload)
    record = server.step(model)
    print(f"t = {record.iteration:2}: {record.kept:4} of {dim} entries in {len(upload)} bytes")

# --- Your own model and data in the simulator -----------------------------------------------------------

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
    f"accuracy {summary.final:.1%}, of the averaged model {summary.averaged:.1%}, "
    f"{summary.dense_bytes_per_client / summary.uplink_bytes_per_client:.0f}× less than dense"
)
