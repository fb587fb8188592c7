"""Algorithm 1 of the paper, γ-FedHT, on one screen: numpy for the algorithm, torch for the gradients, no gammafl.

python examples/algorithm1.py

`gf.simulate` computes the same: tests/test_algorithm1.py checks it. Line numbers are the paper's. If the paper
contradicts itself, as in the sign of Δ, docs/deviations.md says which version is used.
"""
# ruff: noqa: N803, N806 (E, S and T are the paper's names)

from importlib.resources import files

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def gamma_fedht(x, p, gradient, pick, gamma, lambda_0, T, E, alpha=1.0):
    """From x_0 = `x`, with training weights p_i. After each round: t, the model x_t, and each client's upload.

    gradient(i, t, x)   g^i(x): a stochastic gradient of client i, at iteration t
    pick(t)             S_t: the clients of the round that starts at iteration t
    gamma(t)            γ_t: the stepsize
    """
    n, b = len(p), (gamma(0) * gamma(T)) ** (alpha / 2)
    e = np.zeros((n, x.size), np.float32)  # what each client has not sent
    for t in range(T):
        if t % E == 0:  # a round begins
            S = pick(t)  # line 3
            local = {i: x.copy() for i in S}  # line 7: download
        for i in S:
            local[i] -= gamma(t) * gradient(i, t, local[i])  # line 9: local SGD
        if t % E == E - 1:  # a round ends
            a = gamma(t + 1) ** alpha
            threshold = lambda_0 * np.sqrt(a * b / (a**2 + b**2))  # line 11: λ_{t+1}
            sent = {}
            for i in S:
                wanted = e[i] + (x - local[i])
                sent[i] = np.where(np.abs(wanted) > threshold, wanted, 0)  # line 12: large entries are sent,
                e[i] = wanted - sent[i]  # line 13: the rest is kept
            x = x - n / len(S) * sum(p[i] * sent[i] for i in S)  # line 19: the server's update
            yield t + 1, x, sent


def gradient_of(model, clients, batch):
    """g^i of a torch model with parameters x, on the rows batch(i, t) of the samples of client i."""

    def gradient(i, t, x):
        (inputs, labels), rows = clients[i], batch(i, t)
        vector_to_parameters(torch.from_numpy(x), model.parameters())
        loss = cross_entropy(model(inputs[rows]), labels[rows])
        return parameters_to_vector(torch.autograd.grad(loss, list(model.parameters()))).numpy()

    return gradient


if __name__ == "__main__":  # logistic regression on 5,000 images of ten kinds of clothes; a client knows two or three
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    with np.load(str(files("gammafl") / "data/fashion-mnist-mini.npz")) as file:
        images = dict(file)
    x_train, x_test = (torch.from_numpy(images[part]).flatten(1) / 255 for part in ("train", "test"))
    y_train, y_test = (torch.from_numpy(images[f"{part}_labels"]).long() for part in ("train", "test"))
    shards = y_train.argsort(stable=True).chunk(20)
    clients = [(x_train[rows], y_train[rows]) for rows in (torch.cat(shards[i::10]) for i in range(10))]
    model = torch.nn.Linear(784, 10)

    rounds = gamma_fedht(
        x=parameters_to_vector(model.parameters()).detach().numpy().copy(),
        p=[len(labels) / len(y_train) for _, labels in clients],
        gradient=gradient_of(model, clients, batch=lambda i, t: rng.integers(len(clients[i][1]), size=50)),
        pick=lambda t: rng.choice(10, 5, replace=False),
        gamma=lambda t: 100 / (t + 1000),
        lambda_0=0.087,  # Table II, Logistic
        T=1000,
        E=5,
    )
    for t, x, sent in rounds:
        if t % 200 == 0:
            vector_to_parameters(torch.from_numpy(x), model.parameters())
            accuracy = (model(x_test).argmax(1) == y_test).float().mean()
            kept = np.mean([np.count_nonzero(update) / x.size for update in sent.values()])
            print(f"t = {t:4}: accuracy {accuracy:.1%}, {kept:.2%} of the entries sent")
