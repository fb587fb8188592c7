"""docs/methods.md says what the registry says."""

from gammafl.methods.registry import OURS
from tools.methods_page import PAGE, page


def test_the_page_is_what_the_registry_says() -> None:
    """If this fails, run: make methods-page"""
    assert PAGE.read_text("utf-8") == page()


def test_every_method_of_ours_is_on_it() -> None:
    for name in OURS:
        assert f"| `{name}` |" in PAGE.read_text("utf-8")
