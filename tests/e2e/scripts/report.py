"""What the scripts of this directory print: one line per result, equal if the bits are."""

import hashlib
import json

import numpy as np

# How a line begins whose numbers need not be equal to the bit.
ABOUT = "about "


def report(name, value):
    import jax

    leaves = jax.tree_util.tree_leaves(value)
    for index, leaf in enumerate(leaves):
        array = np.asarray(leaf)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        label = name if len(leaves) == 1 else f"{name}[{index}]"
        print(f"{label} {array.dtype} {array.shape} {digest}", flush=True)


def report_about(name, value, tolerance):
    """For what is computed by different versions of XLA: equal within `tolerance`."""
    import jax

    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(value)]
    numbers = np.concatenate([leaf.astype(complex).ravel() for leaf in leaves])
    parts = [float(part) for number in numbers for part in (number.real, number.imag)]
    shapes = " ".join(f"{leaf.dtype} {leaf.shape}" for leaf in leaves)
    print(f"{ABOUT}{tolerance} {name} {shapes}: {json.dumps(parts)}", flush=True)


def raises(kind, text, call, *args, **kwargs):
    """`call` must raise `kind` with `text` in it."""
    try:
        call(*args, **kwargs)
    except kind as error:
        assert text in str(error), f"`{text}` is not in: {error}"
    else:
        raise AssertionError(f"{kind} was not raised")
