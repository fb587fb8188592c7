"""Numbers as text for people."""


def show_metric(name: str, value: float) -> str:
    """Accuracies in per cent, all other metrics unchanged."""
    return f"{100 * value:.2f}%" if name == "accuracy" else f"{value:.3f}"


def show_duration(seconds: float) -> str:
    """'40 s', '12 min', '3.5 h'."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show_bytes(count: float) -> str:
    """Decimal units: 1.53 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"
