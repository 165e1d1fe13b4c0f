"""Stands for a vendor's own package for JAX: says in a file that its client was created."""

import os


def initialize() -> None:
    from jax._src import xla_bridge

    xla_bridge.register_backend_factory(
        os.environ["VENDOR_PLATFORM"], create, priority=500, fail_quietly=False
    )


def create():
    from jax._src.lib import xla_client

    with open(os.environ["VENDOR_CREATED"], "a") as created:
        created.write("created\n")
    return xla_client.make_cpu_client()
