"""Tables III and IV: accuracy and traffic at equal traffic, #C = 2, 3, 5."""

from functools import partial
from statistics import mean

from gammafl.experiments.claims import Claim, Part
from gammafl.experiments.grid import Study
from gammafl.experiments.levels import classes, label, methods
from gammafl.experiments.results import Results, difference
from gammafl.federated.units import show_bytes
from gammafl.paper.comparisons import QUICK, better, interval_picture, scale_of, spread, title_of
from gammafl.paper.printed import kept_by_paper, printed
from gammafl.report.pictures import Picture
from gammafl.report.tables import PICKED, TextTable, best_of

MIB = 1 << 20


def traffic_table(results: Results) -> list[TextTable]:
    """A row for each #C and method: ours, and the paper's in the column to the right."""
    rows = [
        _row(results, c, method)
        for c in results.levels["classes"]
        for method in results.levels["method"]
        if results.has(classes=c, method=method)
    ]
    metric = "accuracy" if scale_of(results)[1] == "points" else scale_of(results)[1]
    best = best_of(run.figures.get("evaluations") for run in results.runs)
    columns = [
        "#C, method", f"{metric}, last", "paper", "final", best, "averaged", "kept %", "paper", "values only MiB",
        "paper", "measured uplink", "reduced to %",
    ]  # fmt: skip
    note = (
        f"last: mean of the last evaluations; {PICKED}; averaged: the server's averaged model; ± over seeds. "
        "Values only is the paper's accounting, without positions; measured uplink is the length of the encoded "
        "messages. Both are of a client that takes part in every round. Top-k and STC keep as many entries as γ-FedHT "
        "and γ-FedHT-Q."
    )
    return [TextTable(f"{results.study}: {results.task}, {results.seeds_in_words()}", columns, rows, note)]


def _row(results: Results, c: str, method: str) -> list[str]:
    cell = {"classes": c, "method": method}
    paper, scale = printed(results.task, c, method), scale_of(results)[0]
    uplink = mean(results.by_seed("uplink_bytes_per_client", **cell).values())
    dense = mean(results.by_seed("dense_bytes_per_client", **cell).values())
    return [
        f"{c} {label(method)}",
        spread(results, "last_mean", cell, scale),
        f"{paper.accuracy:.2f}" if paper else "–",
        spread(results, "final", cell, scale),
        spread(results, "best", cell, scale),
        spread(results, "averaged", cell, scale),
        spread(results, "kept_fraction", cell, 100, 3),
        f"{kept_by_paper(paper, method):g}" if paper else "–",
        spread(results, "value_bytes_per_client", cell, 1 / MIB),
        f"{paper.traffic:g}" if paper else "–",
        show_bytes(uplink),
        f"{100 * uplink / dense:.3f}",
    ]


def less_traffic(results: Results, first: str, second: str) -> list[Part]:
    """`first` sends less than `second`, in the paper's accounting, as a percentage of the second."""
    parts = []
    for c in results.levels["classes"]:
        ours, other = (
            results.by_seed("value_bytes_per_client", classes=c, method=method) for method in (first, second)
        )
        saved = {seed: -100 * value / other[seed] for seed, value in difference(ours, other).items()}
        a, b = printed(results.task, c, first), printed(results.task, c, second)
        paper = 100 * (1 - a.traffic / b.traffic) if a and b else None
        parts.append(Part(f"sent less by, #C={c}", saved, "above", 0.0, "%", paper))
    return parts


def _pictures(pairs: list[tuple[str, str]], results: Results) -> list[Picture]:
    parts = [part for first, second in pairs for part in better(results, first, second)]
    title = title_of(results, "differences in accuracy")
    return interval_picture(results.study, title, f"difference ({scale_of(results)[1]})", parts)


WITHIN = {"logistic-fmnist": 0.11, "cnn-cifar10": 1.24}
"""The paper's own largest gap between γ-FedHT and FedAVG, in points."""


def _near_fedavg(results: Results) -> list[Part]:
    return better(results, "gamma-fedht", "fedavg", -WITHIN.get(results.task, WITHIN["logistic-fmnist"]))


def _headline(results: Results) -> list[Part]:
    """At #C=3, where the paper prints +7.42."""
    pairs = [("gamma-fedht", "top-k"), ("gamma-fedht", "top-k per tensor")]
    parts = [part for a, b in pairs for part in better(results, a, b, 1.0, share_of_paper=0.5)]
    return [part for part in parts if part.label.endswith("#C=3")]


TABLE3 = Study(
    "table3",
    "Table III: accuracy and traffic of Top-k, HT, γ-FedHT and FedAVG, #C = 2, 3, 5",
    ("logistic-fmnist", "cnn-cifar10"),
    (classes(2, 3, 5), methods("gamma-fedht", "ht", "top-k", "top-k per tensor", "fedavg")),
    (
        Claim(
            "γ-FedHT is more accurate than Top-k (of the whole model) at equal traffic",
            "Sec. V-C",
            lambda r: better(r, "gamma-fedht", "top-k"),
        ),
        Claim(
            "γ-FedHT is more accurate than Top-k per tensor at equal traffic",
            "Sec. V-C, the other reading of Top-k",
            lambda r: better(r, "gamma-fedht", "top-k per tensor"),
        ),
        Claim(
            "The lead over Top-k at #C=3 is large: at least half of the paper's 7.42 points, in both readings of Top-k",
            "abstract",
            _headline,
            ("cnn-cifar10",),
        ),
        Claim("γ-FedHT is more accurate than HT", "Sec. V-C", lambda r: better(r, "gamma-fedht", "ht")),
        Claim(
            "γ-FedHT sends less than HT in nearly all cases",
            "Sec. V-C",
            lambda r: less_traffic(r, "gamma-fedht", "ht"),
        ),
        Claim("γ-FedHT loses no more to FedAVG than the paper's largest gap", "Table III", _near_fedavg),
    ),
    traffic_table,
    partial(
        _pictures,
        [
            ("gamma-fedht", "top-k"),
            ("gamma-fedht", "top-k per tensor"),
            ("gamma-fedht", "ht"),
            ("gamma-fedht", "fedavg"),
        ],
    ),
    quick=QUICK,
)

Q_LOSES = {"logistic-fmnist": 0.13, "cnn-cifar10": 1.04}
"""The most that γ-FedHT-Q is behind γ-FedHT in the paper, in points."""


def _quantiser_is_free(results: Results) -> list[Part]:
    return better(results, "gamma-fedht-q", "gamma-fedht", -Q_LOSES.get(results.task, Q_LOSES["logistic-fmnist"]))


TABLE4 = Study(
    "table4",
    "Table IV: accuracy and traffic of STC and γ-FedHT-Q, #C = 2, 3, 5",
    ("logistic-fmnist", "cnn-cifar10"),
    (classes(2, 3, 5), methods("gamma-fedht-q", "stc", "stc per tensor", "gamma-fedht")),
    (
        Claim(
            "γ-FedHT-Q is more accurate than STC (of the whole model) at equal traffic",
            "Table IV",
            lambda r: better(r, "gamma-fedht-q", "stc"),
        ),
        Claim(
            "γ-FedHT-Q is more accurate than STC per tensor at equal traffic",
            "Table IV, STC as its authors' code does it",
            lambda r: better(r, "gamma-fedht-q", "stc per tensor"),
        ),
        Claim("The quantiser costs γ-FedHT no more than in the paper", "Sec. V-C", _quantiser_is_free),
    ),
    traffic_table,
    partial(
        _pictures, [("gamma-fedht-q", "stc"), ("gamma-fedht-q", "stc per tensor"), ("gamma-fedht-q", "gamma-fedht")]
    ),
    quick=QUICK,
)
