"""Rows whose programs call functions of their job."""

import time

clock = time.perf_counter


def calling_program(count, called=lambda: None):
    """A program that adds one to a number `count` times, each time by a callback."""
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
    """Launches with `each_launch` callbacks each, one after the other; a step is one callback."""
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
    and says how it went, so that what is between is another process's block.

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

        def run(failed=failed, ending=ending):
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
