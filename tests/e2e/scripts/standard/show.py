"""What the scripts of this directory print: all numbers, to be compared with tolerance."""

import numpy as np


def show(name, value):
    """One line per array: its name, type, shape and numbers."""
    import jax

    leaves = jax.tree_util.tree_leaves(value)
    for index, leaf in enumerate(leaves):
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        label = name if len(leaves) == 1 else f"{name}[{index}]"
        shape = "x".join(map(str, array.shape)) or "scalar"
        print(label, array.dtype, shape, " ".join(_numbers(array)), flush=True)


def _numbers(array):
    flat = array.ravel()
    if np.issubdtype(flat.dtype, np.complexfloating):
        flat = np.stack([flat.real, flat.imag], -1).ravel()
    if np.issubdtype(flat.dtype, np.floating) or flat.dtype.kind == "V":
        return [f"{x:.9g}" for x in flat.astype(np.float64)]
    return [str(x) for x in flat.tolist()]


def show_error(name, call, *args, **kwargs):
    """The last line of what `call` raises: messages are part of what a user sees."""
    try:
        call(*args, **kwargs)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        print(name, type(error).__name__, lines[-1] if lines else "", flush=True)
    else:
        print(name, "no error", flush=True)


def show_all(function, *args):
    """One program with everything that `function` returns by name: compiled once."""
    import jax

    for name, value in sorted(jax.jit(function)(*args).items()):
        show(name, value)
