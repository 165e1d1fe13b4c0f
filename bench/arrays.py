"""Rows about bytes: large arrays to the device and back, and jobs that hold a lot of memory."""

import itertools
import time

from loops import median

clock = time.perf_counter

# More than the system takes to get 64 MiB back.
FREEING_SECONDS = 0.02


def transfers(mebibytes):
    """A large array to the device and another one back, beside plain copies of that size."""
    import jax
    import numpy as np

    count = mebibytes * (1 << 20) // 4
    source, target = np.zeros(count, np.float32), np.zeros(count, np.float32)
    fresh = itertools.count(1)
    plus_one = jax.jit(lambda x: x + 1)
    first = jax.jit(lambda x: x[0])

    def copy():
        source.fill(next(fresh))
        before = clock()
        np.copyto(target, source)
        return clock() - before

    def to_device():
        source.fill(next(fresh))
        before = clock()
        array = jax.device_put(source)
        array.block_until_ready()
        return clock() - before, array

    def to_program():
        """Until a program has read it: what the service does with it meanwhile counts."""
        source.fill(next(fresh))
        before = clock()
        value = first(jax.device_put(source)).block_until_ready()
        elapsed = clock() - before
        if value != source[0]:
            raise RuntimeError(f"sent {source[0]} and a program read {value}")
        return elapsed

    def to_host(array):
        result = plus_one(array)
        del array
        result.block_until_ready()
        before = clock()
        values = np.asarray(result)
        elapsed = clock() - before
        if values[0] != source[0] + 1 or values[-1] != source[-1] + 1:
            raise RuntimeError(f"sent {source[0]} and got {values[0] - 1} back")
        return elapsed

    def once():
        put, array = to_device()
        get = to_host(array)
        del array
        # Arrays are freed on other threads, and by Salus in another process: not beside a copy.
        time.sleep(FREEING_SECONDS)
        used = to_program()
        time.sleep(FREEING_SECONDS)
        return put, used, get, copy(), copy()

    seconds = yield {}
    while True:
        once()
        times, begin = [], clock()
        while not times or clock() - begin < seconds:
            times.append(once())
        puts, used, gets, copies, copies_again = (median(column) * 1e6 for column in zip(*times))
        seconds = yield {
            "copy_us": copies,
            "copy_again_us": copies_again,
            "to_device_us": puts,
            "to_program_us": used,
            "to_host_us": gets,
            "transfers": len(times),
        }


def shapes_of(mebibytes, arrays):
    """As layers have weights and biases: half of the arrays are small."""
    columns = 1024
    rows = mebibytes * (1 << 20) // 4 // columns
    small = [8] * (arrays // 2)
    large = [(rows - sum(small)) // (arrays - len(small))] * (arrays - len(small))
    return [(n, columns) for n in small + large]


def replacer(mebibytes, arrays):
    """A job whose state is so large, and that makes all of it anew when it is asked for a block."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def start(value):
        return [jnp.full(shape, value) for shape in shapes_of(mebibytes, arrays)]

    state = start(0.0)
    state[0].block_until_ready()
    blocks = 0
    yield {"arrays": arrays}
    while True:
        begun = clock()
        blocks += 1
        # The old state must be gone first: both do not fit the device.
        del state
        state = start(float(blocks))
        state[0].block_until_ready()
        yield {"seconds": clock() - begun, "last": float(state[0][0, 0])}


def holder(mebibytes, arrays, waits):
    """A job whose state is so large, in as many arrays as a model has, and that takes it over in
    place each step; if it waits, then as long on its host as its fastest step so far took.

    Blocks are counted in steps here, not in seconds.
    """
    import functools

    import jax
    import jax.numpy as jnp

    @jax.jit
    def start():
        shapes = shapes_of(mebibytes, arrays)
        return [jnp.full(shape, 1e-3 * i) for i, shape in enumerate(shapes)]

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state):
        # Some arithmetic on each number, so that a step is more than a copy.
        new = [jnp.tanh(a * 0.9 + 0.1) for a in state]
        return new, new[0][0, 0]

    state = start()
    for _ in range(3):
        state, last = step(state)
    last.block_until_ready()
    begun = clock()
    for _ in range(3):
        state, last = step(state)
        last.block_until_ready()
    fastest = (clock() - begun) / 3
    steps = yield {"arrays": arrays, "step_us": fastest * 1e6}
    while True:
        begun = clock()
        for _ in range(int(steps)):
            step_begun = clock()
            state, last = step(state)
            last.block_until_ready()
            fastest = min(fastest, clock() - step_begun)
            if waits:
                time.sleep(fastest)
        steps = yield {"seconds": clock() - begun, "last": float(last)}
