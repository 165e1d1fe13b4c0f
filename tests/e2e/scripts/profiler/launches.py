"""Takes a profile of some launches and prints what it says of the device, as JSON.

Arguments: how many launches; how many were made before the profile.
"""

import json
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp


@jax.jit
def turn(x):
    return jax.lax.fori_loop(0, 8, lambda _, y: jnp.sin(y @ y), x)


launches, before = int(sys.argv[1]), int(sys.argv[2])
x = jnp.full((200, 200), 0.01)
for _ in range(before):
    x = turn(x)
x.block_until_ready()
directory = tempfile.mkdtemp()
with jax.profiler.trace(directory):
    for _ in range(launches):
        x = turn(x)
    x.block_until_ready()
print("result", float(x.sum()) == float(x.sum()))

(path,) = Path(directory).rglob("*.xplane.pb")
planes = {}
for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
    planes[plane.name] = {
        line.name: [(e.name, e.start_ns, e.duration_ns, dict(e.stats)) for e in line.events]
        for line in plane.lines
    }
print(json.dumps(planes, default=str))
