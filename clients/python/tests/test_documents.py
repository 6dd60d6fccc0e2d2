"""The README says what happens."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys

import pytest
import ratelimiterd.limiter
from conftest import ROOT

README = ROOT / "clients" / "python" / "README.md"


def examples() -> list[tuple[str, str]]:
    """The programs, and what they print."""
    return re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize(("program", "output"), examples())
def test_an_example_prints_what_the_readme_says(program: str, output: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == (output, "")


def test_every_example_of_the_readme_is_run() -> None:
    assert len(examples()) == README.read_text().count("```python") == 2


def test_the_examples_of_the_docstrings_hold() -> None:
    results = doctest.testmod(ratelimiterd.limiter)
    assert results.attempted >= 3
    assert results.failed == 0
