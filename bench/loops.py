"""Rows that train or infer: loops around the steps of a model.

A row is a generator: up to its first `yield` it prepares, and with each `send(seconds)` it works
for about that long and yields the numbers of that block.
"""

import itertools
import time

from models import Training, make, make_training

clock = time.perf_counter


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
    """Counts steps, not seconds, and says when the last one was done."""
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
    """Requests at random times, `gap_seconds` apart on average. One thread sends and another takes
    answers, so that a request does not wait in this process for the one before.
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

        def take(latencies=latencies, sent=sent):
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


def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
