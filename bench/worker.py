"""One side of `salus bench`: a stock JAX process that runs blocks of work on command.

The bench starts several of these, some directly on the vendor's plugin and one through Salus; only
their environment differs. Each reads commands from standard input, one JSON object a line, and
answers each with one line:

    {"do": "prepare", "row": "step_1ms"}                   {"arguments": 21}
    {"do": "block", "row": "step_1ms", "seconds": 0.5}     {"step_us": 845.1, "steps": 600}
    {"do": "drop", "row": "step_1ms"}                      {}

An answer with the key `error` means that the command did not work. At the end of its input the
process ends. While it waits for a command it sleeps in `read`.

Two other ways to start it: `probe` tells what this Python has, `first-step MODEL` trains one step
as a new process does and prints the loss.

A row is a generator: up to its first `yield` it prepares, and with each `send(seconds)` it works
for about that long and yields the numbers of that block.
"""

import gc
import itertools
import json
import os
import sys
import time
import traceback

clock = time.perf_counter

# ---------------------------------------------------------------- models

# Sizes give steps of about 0.1, 1, 10 and 100 ms on two cores of a small cloud machine.
MLPS = {
    "mlp_100us": {"batch": 16, "features": 16, "widths": (32,), "classes": 8},
    "mlp_1ms": {"batch": 64, "features": 64, "widths": (256, 256), "classes": 10},
    "mlp_10ms": {"batch": 128, "features": 256, "widths": (1024, 1024), "classes": 10},
}
TRANSFORMERS = {
    "transformer_3ms": {"batch": 4, "length": 32, "vocabulary": 64, "width": 64, "layers": 2},
    "transformer_10ms": {"batch": 32, "length": 32, "vocabulary": 64, "width": 64, "layers": 2},
    "transformer_100ms": {"batch": 32, "length": 96, "vocabulary": 64, "width": 96, "layers": 2},
}

CNNS = {
    "cnn_10ms": {"batch": 48, "side": 16, "channels": (16, 32), "classes": 10},
    "cnn_100ms": {"batch": 64, "side": 24, "channels": (32, 64), "classes": 10},
}
LSTMS = {
    "lstm_3ms": {"batch": 16, "length": 24, "vocabulary": 32, "width": 32},
    "lstm_10ms": {"batch": 16, "length": 32, "vocabulary": 64, "width": 64},
}

# Training data: enough different batches that none is special.
BATCHES = 16


def make_mlp(batch, features, widths, classes):
    """Model and batches of (points, labels)."""
    import numpy as np
    from flax import linen as nn

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x):
            for width in widths:
                x = nn.relu(nn.Dense(width)(x))
            return nn.Dense(classes)(x)

    rng = np.random.default_rng(0)
    points = rng.normal(size=(BATCHES, batch, features)).astype(np.float32)
    labels = rng.integers(classes, size=(BATCHES, batch)).astype(np.int32)
    return MLP(), list(zip(points, labels))


def make_transformer(batch, length, vocabulary, width, layers):
    """Model and batches of (symbols, the symbols that follow them)."""
    import jax.numpy as jnp
    import numpy as np
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, mask):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, y, mask=mask)
            y = nn.LayerNorm()(x)
            return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(y)))

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, symbols):
            positions = nn.Embed(length, width)(jnp.arange(length))
            x = nn.Embed(vocabulary, width)(symbols) + positions
            mask = nn.make_causal_mask(symbols)
            for _ in range(layers):
                x = Block()(x, mask)
            return nn.Dense(vocabulary)(nn.LayerNorm()(x))

    rng = np.random.default_rng(0)
    lines = rng.integers(vocabulary, size=(BATCHES, batch, length + 1)).astype(np.int32)
    return Transformer(), [(line[:, :-1].copy(), line[:, 1:].copy()) for line in lines]


def make_cnn(batch, side, channels, classes):
    """Model and batches of (pictures, labels)."""
    import numpy as np
    from flax import linen as nn

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x):
            for count in channels:
                x = nn.relu(nn.Conv(count, (3, 3))(x))
                x = nn.avg_pool(x, (2, 2), strides=(2, 2))
            return nn.Dense(classes)(x.reshape((x.shape[0], -1)))

    rng = np.random.default_rng(0)
    pictures = rng.normal(size=(BATCHES, batch, side, side, 3)).astype(np.float32)
    labels = rng.integers(classes, size=(BATCHES, batch)).astype(np.int32)
    return CNN(), list(zip(pictures, labels))


def make_lstm(batch, length, vocabulary, width):
    """Model and batches of (symbols, the symbols that follow them)."""
    import numpy as np
    from flax import linen as nn

    class LSTM(nn.Module):
        @nn.compact
        def __call__(self, symbols):
            x = nn.Embed(vocabulary, width)(symbols)
            # The default wants a QR decomposition, which the plugin alone does not have.
            kernels = nn.initializers.lecun_normal()
            x = nn.RNN(nn.OptimizedLSTMCell(width, recurrent_kernel_init=kernels))(x)
            return nn.Dense(vocabulary)(x)

    rng = np.random.default_rng(0)
    lines = rng.integers(vocabulary, size=(BATCHES, batch, length + 1)).astype(np.int32)
    return LSTM(), [(line[:, :-1].copy(), line[:, 1:].copy()) for line in lines]


def make(name):
    """The model of this name, and its batches."""
    for models, maker in (
        (MLPS, make_mlp),
        (TRANSFORMERS, make_transformer),
        (CNNS, make_cnn),
        (LSTMS, make_lstm),
    ):
        if name in models:
            return maker(**models[name])
    raise KeyError(name)


def make_training(name, donate):
    """What makes the state at the start, the jitted step, and batches, as a training script has
    them.
    """
    import jax
    import optax

    model, batches = make(name)
    optimizer = optax.adam(1e-3)

    def train_step(state, x, y):
        params, momenta = state

        def loss_of(params):
            logits = model.apply(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, momenta = optimizer.update(grads, momenta, params)
        return (optax.apply_updates(params, updates), momenta), loss

    def start():
        params = model.init(jax.random.key(0), batches[0][0])
        return params, optimizer.init(params)

    return start, jax.jit(train_step, donate_argnums=0 if donate else ()), batches


class Training:
    """A model, its optimizer's state and its jitted step."""

    def __init__(self, name, donate=True):
        import jax

        start, self.step, batches = make_training(name, donate)
        self.state = start()
        self.batches = itertools.cycle(batches)
        self.arguments = len(jax.tree.leaves(self.state)) + len(batches[0])

    def advance(self, steps):
        """Sends so many steps, each with a batch from the host, and returns the last one's loss."""
        step, state, batches = self.step, self.state, self.batches
        for _ in range(steps):
            state, loss = step(state, *next(batches))
        self.state = state
        return loss


# ---------------------------------------------------------------- rows


def training_loop(model, read_every):
    """Steps with donated state; the loss is read every so often."""
    training = Training(model)
    seconds = yield {"arguments": training.arguments}
    while True:
        # Untimed: brings back into the caches what the other processes' blocks drove out.
        float(training.advance(read_every))
        steps, begin = 0, clock()
        while (elapsed := clock() - begin) < seconds:
            float(training.advance(read_every))
            steps += read_every
        seconds = yield {"step_us": elapsed / steps * 1e6, "steps": steps}


def counted_loop(model, read_every):
    """So many steps, not seconds; tells when the last one was done."""
    training = Training(model)
    float(training.advance(read_every))
    steps = yield {"arguments": training.arguments}
    while True:
        begin, left = clock(), int(steps)
        while left > 0:
            loss = float(training.advance(min(left, read_every)))
            left -= read_every
        steps = yield {"seconds": clock() - begin, "loss": loss}


def inference(name, gap_seconds):
    """Requests at random times, on average so far apart; one thread sends, another takes answers, so
    that a request does not wait in this process for the one before.
    """
    import queue
    import random
    import threading

    import jax

    model, batches = make(name)
    params = model.init(jax.random.key(0), batches[0][0])
    predict = jax.jit(lambda params, x: model.apply(params, x).argmax(-1))
    inputs = itertools.cycle([x for x, _ in batches])
    for _ in range(20):
        jax.device_get(predict(params, next(inputs)))
    seconds = yield {}
    arrivals = random.Random(0)
    while True:
        latencies, sent, begin = [], queue.SimpleQueue(), clock()

        def take():
            while (one := sent.get()) is not None:
                due, answer = one
                jax.device_get(answer)
                latencies.append(clock() - due)

        taker = threading.Thread(target=take)
        taker.start()
        due = begin + arrivals.expovariate(1 / gap_seconds)
        while due < begin + seconds:
            if (early := due - clock()) > 0:
                time.sleep(early)
            sent.put((due, predict(params, next(inputs))))
            due += arrivals.expovariate(1 / gap_seconds)
        sent.put(None)
        taker.join()
        latencies.sort()
        seconds = yield {
            "requests": len(latencies),
            "median_ms": latencies[len(latencies) // 2] * 1e3,
            "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        }


def unread_loop(model, warm_steps):
    """Steps with donated state whose loss nobody reads; waits only at the end of the block."""
    training = Training(model)
    seconds = yield {"arguments": training.arguments}
    while True:
        training.advance(warm_steps).block_until_ready()
        steps, begin = 0, clock()
        while (in_loop := clock() - begin) < seconds:
            loss = training.advance(1)
            steps += 1
        loss.block_until_ready()
        elapsed = clock() - begin
        seconds = yield {
            "step_us": elapsed / steps * 1e6,
            "loop_us": in_loop / steps * 1e6,
            "steps": steps,
            "warm_steps": warm_steps,
        }


def turns(model):
    """One model alone, and two that take turns, in steps that nobody reads."""
    models = [Training(model), Training(model)]
    seconds = yield {}

    def run(chosen):
        chosen[0].advance(3).block_until_ready()
        steps, begin = 0, clock()
        while clock() - begin < seconds / 2:
            loss = chosen[steps % len(chosen)].advance(1)
            steps += 1
        loss.block_until_ready()
        return (clock() - begin) / steps * 1e6

    while True:
        seconds = yield {"same_us": run(models[:1]), "turns_us": run(models)}


def read_each_step(model, warm_steps):
    """Every step's loss is read before the next step is sent."""
    training = Training(model)
    seconds = yield {"arguments": training.arguments}
    while True:
        for _ in range(warm_steps):
            float(training.advance(1))
        times = []
        begin = before = clock()
        while before - begin < seconds:
            float(training.advance(1))
            now = clock()
            times.append(now - before)
            before = now
        seconds = yield {
            "step_us": sum(times) / len(times) * 1e6,
            "median_us": median(times) * 1e6,
            "steps": len(times),
            "warm_steps": warm_steps,
        }


def asynchronous_execute(model):
    """Time in the calling thread of one jitted call that waits for nothing.

    Nothing is donated, because the vendor's plugin blocks when a donated array is destroyed, and
    few calls are in flight, because it blocks at 32. Waiting and destroying are not timed.
    """
    import jax

    in_flight = 4
    training = Training(model, donate=False)
    step, state = training.step, training.state
    x, y = jax.device_put(next(training.batches))
    seconds = yield {"arguments": training.arguments}
    while True:
        jax.block_until_ready(step(state, x, y))
        times, cpu_times, begin = [], [], clock()
        while clock() - begin < seconds:
            results = []
            for _ in range(in_flight):
                cpu_before, before = time.thread_time(), clock()
                result = step(state, x, y)
                after, cpu_after = clock(), time.thread_time()
                results.append(result)
                times.append(after - before)
                cpu_times.append(cpu_after - cpu_before)
            jax.block_until_ready(results)
            del result, results
        seconds = yield {
            "call_us": median(times) * 1e6,
            "mean_us": sum(times) / len(times) * 1e6,
            "cpu_us": median(cpu_times) * 1e6,
            "calls": len(times),
        }


def load(model):
    """Has the step of a model compiled, once, without a single array.

    `backend_us` is JAX's call to the backend, which writes the program down and reads what came of
    it; `call_us` is all of `compile()`. The token holds the program as the library sent it.
    """
    import jax

    start, step, batches = make_training(model, donate=True)
    lowered = step.lower(jax.eval_shape(start), *batches[0])
    jax.devices()
    durations = []

    def heard(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            durations.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(heard)
    yield {}
    begin = clock()
    compiled = lowered.compile()
    elapsed = clock() - begin
    serialized = compiled.runtime_executable().serialize()
    # Before it, JAX puts a description of its own.
    token = serialized[serialized.index(b"salus-program-") :]
    yield {"backend_us": durations[-1] * 1e6, "call_us": elapsed * 1e6, "token": token.hex()}


def calling_program(count, called=lambda: None):
    """A program that adds one to a number so many times, each time by a callback."""
    import jax
    import numpy as np

    number = jax.ShapeDtypeStruct((), np.float32)

    def plus_one(x):
        called()
        return np.asarray(x) + np.float32(1)

    def call(x):
        return jax.pure_callback(plus_one, number, x)

    def in_loop(x):
        return jax.lax.fori_loop(0, count, lambda _, x: call(x), x)

    program, start = jax.jit(call if count == 1 else in_loop), np.float32(0)

    def launch():
        if (found := float(program(start))) != count:
            raise RuntimeError(f"{count} callbacks added up to {found}")

    return launch


def callback_loop(each_launch):
    """Launches with so many callbacks each, one after the other; a step is one callback."""
    launch = calling_program(each_launch)
    launch()
    seconds = yield {}
    while True:
        for _ in range(100 // each_launch):
            launch()
        steps, begin = 0, clock()
        while (elapsed := clock() - begin) < seconds:
            launch()
            steps += each_launch
        seconds = yield {"step_us": elapsed / steps * 1e6, "steps": steps}


CALLBACKS_PER_SECOND = 1000


def paced_callbacks(each_launch):
    """Calls back at a steady pace in a thread of its own: a block starts it, and the next ends it
    and tells how it went, so that what lies between is another process's block.

    With many in a launch it is the function that waits until it is due, as one does that drives a
    simulation; else it is who launches.
    """
    import threading

    made, begin = 0, clock()

    def wait_until_due():
        # Who is late makes up for it.
        if (early := begin + made / CALLBACKS_PER_SECOND - clock()) > 0:
            time.sleep(early)

    def called():
        nonlocal made
        if each_launch > 1:
            wait_until_due()
        made += 1

    launch = calling_program(each_launch, called)
    launch()
    yield {}
    while True:
        failed, ending = [], threading.Event()

        def run():
            try:
                while not ending.is_set():
                    if each_launch == 1:
                        wait_until_due()
                    launch()
            except Exception as error:
                failed.append(error)

        made, begin = 0, clock()
        runs = threading.Thread(target=run)
        runs.start()
        yield {}
        calls, elapsed = made, clock() - begin
        ending.set()
        runs.join()
        if failed:
            raise failed[0]
        yield {"callbacks": calls, "callbacks_per_second": calls / elapsed}


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


def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


ROWS = {
    "step_100ms": lambda: training_loop("transformer_100ms", read_every=1),
    "step_10ms_mlp": lambda: training_loop("mlp_10ms", read_every=10),
    "step_10ms_transformer": lambda: training_loop("transformer_10ms", read_every=10),
    "step_1ms": lambda: training_loop("mlp_1ms", read_every=100),
    "step_100us": lambda: training_loop("mlp_100us", read_every=100),
    "unread_1ms": lambda: unread_loop("mlp_1ms", warm_steps=50),
    "unread_10ms": lambda: unread_loop("mlp_10ms", warm_steps=5),
    "read_100us": lambda: read_each_step("mlp_100us", warm_steps=200),
    "read_1ms": lambda: read_each_step("mlp_1ms", warm_steps=50),
    "execute": lambda: asynchronous_execute("transformer_3ms"),
    "transfer": lambda: transfers(64),
    "load_mlp": lambda: load("mlp_10ms"),
    "load_transformer": lambda: load("transformer_10ms"),
    "callback_launch": lambda: callback_loop(each_launch=1),
    "callback_loop": lambda: callback_loop(each_launch=100),
    "calls_each_launch": lambda: paced_callbacks(each_launch=1),
    "calls_in_loop": lambda: paced_callbacks(each_launch=100),
    "turns_1ms": lambda: turns("mlp_1ms"),
    "turns_10ms": lambda: turns("mlp_10ms"),
    "cnn_10ms": lambda: training_loop("cnn_10ms", read_every=10),
    "cnn_100ms": lambda: training_loop("cnn_100ms", read_every=5),
    "lstm_3ms": lambda: training_loop("lstm_3ms", read_every=10),
    "lstm_10ms": lambda: training_loop("lstm_10ms", read_every=10),
    "transformer_3ms": lambda: training_loop("transformer_3ms", read_every=10),
    "count_3ms": lambda: counted_loop("transformer_3ms", read_every=10),
    "infer": lambda: inference("mlp_1ms", gap_seconds=0.05),
    "hold_60": lambda: holder(60, arrays=40, waits=False),
    "hold_60_wait": lambda: holder(60, arrays=40, waits=True),
    "hold_240": lambda: holder(236, arrays=120, waits=False),
    "replace_240": lambda: replacer(236, arrays=120),
}

# ---------------------------------------------------------------- commands


def serve():
    """Answers commands until the input ends."""
    # Libraries may print; only answers belong on the pipe.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    running = {}
    for line in sys.stdin:
        try:
            answer = obey(json.loads(line), running)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def obey(command, running):
    row = command["row"]
    match command["do"]:
        case "prepare":
            running[row] = ROWS[row]()
            return next(running[row])
        case "block":
            return running[row].send(command["seconds"])
        case "drop":
            running.pop(row).close()
            gc.collect()
            return {}
        case other:
            raise ValueError(f"`{other}` is not a command")


def first_step(model):
    """From nothing to the first loss, and where the time went."""
    marks = [("start", clock())]

    def mark(name):
        marks.append((name, clock()))

    import jax

    mark("import_jax")
    import flax.linen  # noqa: F401
    import optax  # noqa: F401

    mark("import_flax_optax")
    jax.devices()
    mark("client")
    training = Training(model)
    jax.block_until_ready(training.state)
    mark("init")
    loss = float(training.advance(1))
    print(f"loss {loss:.6f}", flush=True)
    mark("first_step")
    split = {name: end - before for (_, before), (name, end) in itertools.pairwise(marks)}
    print(json.dumps(split), flush=True)


def probe():
    """What this Python has, for the bench to check and to report."""
    import importlib.metadata
    import platform
    import sysconfig

    found = {"python": platform.python_version(), "versions": {}, "missing": []}
    for name in ("jax", "jaxlib", "flax", "optax", "numpy", "xla-cpu-pjrt"):
        try:
            found["versions"][name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found["missing"].append(name)
    found["site_packages"] = sorted({sysconfig.get_path(p) for p in ("purelib", "platlib")})
    print(json.dumps(found))


def main():
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["first-step", model]:
            first_step(model)
        case ["probe"]:
            probe()
        case _:
            sys.exit("this script belongs to `salus bench`")


if __name__ == "__main__":
    main()
