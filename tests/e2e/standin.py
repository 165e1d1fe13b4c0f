"""The stand-in for CUDA (`crates/standin`): a service on it, and what it counted.

The words of the state file are those of `crates/standin/src/state.rs`.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from harness import ROOT, Sandbox, vendor_plugin

# Of the whole machine.
CLIENTS, COMPILED, COMPILED_WITHOUT_CLIENT, OPENED = range(4)

# Of a device.
(
    MEMORY,
    TAKEN_MOST,
    LAUNCHES,
    CALLS_MOST,
    OUT_OF_MEMORY,
    STICKY,
    UPLOADS,
    UPLOADED_BYTES,
    READS,
    READ_BYTES,
    DMA_MAPS,
    DMA_BYTES_MOST,
    DMA_FAULTS,
    DMA_MOVED_BYTES,
    BUSY_NS,
) = range(15)

# Of a place: what one client holds on one device.
PID, DEVICE, POOL, IN_USE, CALLS, DMA_RANGES, DMA_BYTES = range(7)

DEVICE_AT, DEVICE_WORDS = 64, 64
PLACE_AT, PLACE_WORDS, PLACES = 64 + 16 * 64, 8, 256


def library() -> Path:
    """What `make standin` builds."""
    given = os.environ.get("SALUS_TEST_STANDIN")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return Path(given) if given else target / "release" / "libsalus_standin.so"


class State:
    """The state file of a test's stand-in."""

    def __init__(self, path: Path):
        self.path = path

    def _words(self, at: int, count: int) -> tuple[int, ...]:
        with self.path.open("rb") as file:
            file.seek(8 * at)
            return struct.unpack(f"<{count}Q", file.read(8 * count))

    def word(self, word: int) -> int:
        return self._words(word, 1)[0]

    def device(self, word: int, device: int = 0) -> int:
        return self._words(DEVICE_AT + DEVICE_WORDS * device + word, 1)[0]

    def places(self, device: int = 0) -> list[tuple[int, ...]]:
        """Those that are taken; a process that was killed keeps its own until somebody looks."""
        words = self._words(PLACE_AT, PLACE_WORDS * PLACES)
        places = [words[at : at + PLACE_WORDS] for at in range(0, len(words), PLACE_WORDS)]
        return [place for place in places if place[PID] and place[DEVICE] == device]


def state_of(sandbox: Sandbox) -> State:
    return State(sandbox.directory / "standin.state")


def environment(sandbox: Sandbox, **keys) -> dict[str, str]:
    """`SALUS_STANDIN` with these keys."""
    keys = {
        "plugin": vendor_plugin(),
        "state": state_of(sandbox).path,
        # About what a CPU device has in these tests.
        "memory": "6GiB",
        **keys,
    }
    return {"SALUS_STANDIN": ",".join(f"{key}={value}" for key, value in keys.items())}


def direct(sandbox: Sandbox) -> dict[str, str]:
    """The stand-in without Salus: JAX lowers for CUDA there as well."""
    config = sandbox.directory / "direct-standin.json"
    config.write_text(json.dumps({"library_path": str(library()), "create_options": {}}))
    # A state of its own: the service has its memory.
    keys = environment(sandbox, state=sandbox.directory / "direct.state")
    return sandbox.environment(
        PJRT_NAMES_AND_LIBRARY_PATHS=f"direct:{config}", JAX_PLATFORMS="direct,cpu", **keys
    )
