"""Salus: several JAX jobs share one device, unmodified.

Nothing here is meant to be imported by a job: JAX finds `salus.jax_plugin` by itself through
the entry point group `jax_plugins`, and the command `salus` is on the PATH.
"""

__version__ = "0.1.0"
