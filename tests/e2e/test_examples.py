"""The scripts in `examples/`: unmodified, with the same bits."""

import pytest

from harness import EXAMPLES

NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_there_are_examples():
    assert NAMES == ["cnn.py", "mlp.py", "transformer.py"]


@pytest.mark.parametrize("name", NAMES)
def test_same_bits(both_ways, name):
    result = both_ways(EXAMPLES / name, "--steps", "30")
    assert "final loss" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_knows_nothing_of_salus(name):
    assert "salus" not in (EXAMPLES / name).read_text().lower()
