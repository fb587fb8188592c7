"""The project's page on a package index is README.md, whose links to files of the repository would lead nowhere there.

Everything else about the package is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
NOTE = "*Files that are named here, such as `docs/deploy.md`, are in the source distribution.*\n\n"


def named(link: re.Match[str]) -> str:
    """A link to a file of the repository as the file's name; any other link as it is."""
    text, target = link.groups()
    if not (ROOT / target).exists():
        return link[0]
    return f"`{target}`" if text == target else f"{text} (`{target}`)"


setup(
    long_description=NOTE + re.sub(r"!?\[([^\]]*)\]\(([^)\s]+)\)", named, (ROOT / "README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
