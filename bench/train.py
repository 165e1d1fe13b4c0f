"""A training job of the experiments, as anybody would write it: `train.py vae_64 --steps 500`.

It prints when it began to import, to compile and to train, and its last loss, as one line of JSON.
"""

import argparse
import json
import time

begun = time.monotonic()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--read-every", type=int, default=10, help="steps between losses")
    arguments = parser.parse_args()

    import flax.linen  # noqa: F401
    import jax
    import optax  # noqa: F401

    from workloads import Training

    jax.devices()
    imported = time.monotonic()
    training = Training(arguments.workload, arguments.rate)
    loss = float(training.advance(1))
    compiled = time.monotonic()
    left = arguments.steps - 1
    while left > 0:
        loss = float(training.advance(min(left, arguments.read_every)))
        left -= arguments.read_every
    ended = time.monotonic()
    found = {
        "begun": begun,
        "imported": imported,
        "compiled": compiled,
        "ended": ended,
        "loss": loss,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
