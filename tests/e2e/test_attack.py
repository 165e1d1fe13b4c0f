"""`salus-attack`: hostile clients of a real service, in small numbers.

`make attack` and `make fuzz` do more of the same. What is asserted is that the service holds: the
device host lives, a canary's results stay right, and jobs that train meanwhile end with their bits.
How long that takes is printed only.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from harness import EXAMPLES, ROOT, Job, salus_binary


def attack_binary() -> Path:
    given = os.environ.get("SALUS_ATTACK_BIN")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return Path(given) if given else target / "release" / "salus-attack"


@pytest.fixture
def attack(sandbox):
    def call(*arguments) -> dict:
        binary = attack_binary()
        assert binary.exists(), f"`{binary}` is missing; `make attacker` builds it"
        command = [binary, "--salus", salus_binary(), "--python", sys.executable]
        result = Job(sandbox, [*command, "-o", "json", *arguments], sandbox.environment()).result()
        print(result.stdout)
        assert result.code == 0, result.text()
        tally = json.loads(result.stdout)
        assert tally["held"]
        return tally

    return call


def test_what_once_did_harm_no_longer_does(attack):
    counts = attack("corpus")["counts"]
    assert counts == {"ran": 16, "refused at compile": 28}


@pytest.mark.parametrize(
    ("kind", "count"),
    [("frames", 3000), ("generated", 60), ("programs", 60), ("options", 60), ("tokens", 60)],
)
def test_held_against(attack, kind, count):
    # Always the same, so that a failure here is a change here; `make fuzz` looks for new ones.
    attack(kind, "--seed", "1", "--count", str(count))


def test_arrays_may_change_while_programs_work_on_them(attack):
    assert attack("scribble", "--seconds", "3")["counts"]["launches"] > 0


def test_jobs_keep_their_bits_under_attack(attack):
    tally = attack(
        "all", "--seconds", "10", "--jobs", "2", "--steps", "15", "--examples", str(EXAMPLES)
    )
    assert tally["counts"]["rounds of training"] >= 2
    assert tally["counts"]["deaths of the device host"] == 0
