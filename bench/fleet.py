"""Rows of the experiments, whose models are arguments: many models that answer requests in one
process, what a workload's memory is, and training loops of workloads.
"""

import itertools
import queue
import random
import threading
import time

from workloads import Training, make

clock = time.perf_counter


class Served:
    """A model that answers requests, and what it answered first."""

    def __init__(self, name):
        import jax

        workload = make(name)
        self.name = name
        self.params = jax.jit(workload.start)()
        model = workload.model
        self.input = workload.batches[0][0]
        predict = jax.jit(lambda params, x: jax.tree.leaves(model.apply(params, x))[0])
        self.predict = predict.lower(self.params, self.input).compile()
        # A copy: an array that was read may stay on the device as long as somebody has it.
        self.first = jax.device_get(self.answer()).tobytes()

    def answer(self):
        return self.predict(self.params, self.input)

    def memory(self):
        import jax

        persistent = sum(leaf.nbytes for leaf in jax.tree.leaves(self.params))
        analysis = self.predict.memory_analysis()
        return {
            "model": self.name,
            "parameter_bytes": persistent,
            "scratch_bytes": analysis.temp_size_in_bytes,
            "request_bytes": analysis.output_size_in_bytes + self.input.nbytes,
        }


def fleet(models, seed):
    """Models that are asked at random times. A block is `{"seconds", "rate"}`, requests a second of
    all of them; with `only` one of them is asked. One thread sends and another takes answers, so
    that a request does not wait in this process for the one before.
    """
    import jax

    served = [Served(name) for name in models]
    for model in served:
        for _ in range(3):
            jax.device_get(model.answer())
    block = yield {"models": [model.memory() for model in served]}
    chance = random.Random(seed)
    while True:
        asked = served if block.get("only") is None else [served[block["only"]]]
        sent, found = queue.SimpleQueue(), {model.name: [] for model in asked}
        wrong = []

        def take(sent=sent, found=found, wrong=wrong):
            while (one := sent.get()) is not None:
                due, model, answer = one
                answer = jax.device_get(answer)
                found[model.name].append((clock() - due) * 1e3)
                if answer.tobytes() != model.first:
                    wrong.append(model.name)

        taker = threading.Thread(target=take)
        taker.start()
        begin = clock()
        due = begin + chance.expovariate(block["rate"])
        while due < begin + block["seconds"]:
            if (early := due - clock()) > 0:
                time.sleep(early)
            model = chance.choice(asked)
            sent.put((due, model, model.answer()))
            due += chance.expovariate(block["rate"])
        sent.put(None)
        taker.join()
        block = yield {"latencies_ms": found, "wrong": wrong}


def footprint(workload):
    """Trains; a block is a number of steps, and ends when all of them have."""
    training = Training(workload)
    training.advance(1).block_until_ready()
    steps = yield {}
    while True:
        training.advance(int(steps)).block_until_ready()
        steps = yield {}


def workload_loop(workload, read_every):
    """A training loop, for a time; the loss is read every so often."""
    training = Training(workload)
    float(training.advance(read_every))
    seconds = yield {}
    while True:
        steps, begin = 0, clock()
        for _ in itertools.count():
            float(training.advance(read_every))
            steps += read_every
            if (elapsed := clock() - begin) >= seconds:
                break
        seconds = yield {"step_us": elapsed / steps * 1e6, "steps": steps}
