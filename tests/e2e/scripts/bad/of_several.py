"""One of two processes of `jax.distributed`: arguments are the coordinator's port and which one."""

import sys

import jax

port, index = int(sys.argv[1]), int(sys.argv[2])
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=index)
print("RAN", jax.numpy.ones(3).sum())
