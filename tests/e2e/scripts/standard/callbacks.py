"""Python in the middle of a program: `jax.debug`, `pure_callback`, `io_callback`.

Every number that is printed is exact, so that the text is the same on every backend.
"""

import functools
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from show import show, show_error

# ---------------------------------------------------------------- jax.debug.print


@jax.jit
def chatty(x):
    jax.debug.print("x = {x}, twice {y}", x=x, y=x * 2)
    return x + 1


show("print", chatty(3))
show("print_array", chatty(jnp.arange(3)))
jax.effects_barrier()


@jax.jit
def ordered_scan(xs):
    def body(c, x):
        jax.debug.print("step {x}: {c}", x=x, c=c, ordered=True)
        return c + x, None

    return jax.lax.scan(body, 0, xs)[0]


show("print_in_scan", ordered_scan(jnp.arange(4)))
jax.effects_barrier()


@jax.jit
def either(x):
    def said(word):
        def branch(x):
            jax.debug.print("{x} is " + word, x=x)
            return x

        return branch

    return jax.lax.cond(x > 0, said("positive"), said("not positive"), x)


for number in (1, -1):
    show("print_in_cond", either(number))
    jax.effects_barrier()


@jax.jit
def counting(n):
    def body(s):
        jax.debug.print("at {s}", s=s, ordered=True)
        return s + 1

    return jax.lax.while_loop(lambda s: s < n, body, 0)


show("print_in_while", counting(3))
jax.effects_barrier()

# ---------------------------------------------------------------- jax.debug.callback

seen = []
jax.jit(jax.vmap(lambda x: jax.debug.callback(lambda x: seen.append(int(x)), x)))(jnp.arange(5))
jax.effects_barrier()
print("callback_vmap", sorted(seen), flush=True)

seen.clear()


@jax.jit
@jax.grad
def derived(x):
    jax.debug.callback(lambda x: seen.append(float(x)), x)
    return x**2


show("callback_grad", derived(2.0))
jax.effects_barrier()
print("callback_grad_saw", seen, flush=True)

seen.clear()
tree = {"a": jnp.arange(2), "b": (jnp.float32(0.5), None)}
jax.jit(lambda t: jax.debug.callback(lambda t, word: seen.append((t, word)), t, word="hi"))(tree)
jax.effects_barrier()
got, word = seen[0]
print("callback_tree", np.asarray(got["a"]).tolist(), float(got["b"][0]), got["b"][1], word)

# ---------------------------------------------------------------- pure_callback


def host_sort(x):
    return np.sort(np.asarray(x), axis=-1)


@jax.jit
def through_host(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(host_sort, shape, x, vmap_method="expand_dims") * 2


x = jnp.array([3.0, 1.0, 2.0])
show("pure", through_host(x))
show("pure_vmap", jax.vmap(through_host)(jnp.stack([x, -x])))
show("pure_scan", jax.lax.scan(lambda c, _: (through_host(-c), c), x, None, length=3))
show("pure_cond", jax.lax.cond(x[0] > 0, through_host, lambda x: x, x))
show("pure_map", jax.lax.map(through_host, jnp.stack([x, -x])))
sequential = functools.partial(jax.pure_callback, vmap_method="sequential")
show(
    "pure_sequential",
    jax.vmap(lambda x: sequential(host_sort, jax.ShapeDtypeStruct((3,), jnp.float32), x))(
        jnp.stack([x, -x])
    ),
)
for dtype in ("bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64"):
    shape = jax.ShapeDtypeStruct((2, 3), dtype)
    values = jnp.arange(6).reshape(2, 3).astype(dtype)
    flipped = jax.jit(lambda v, s=shape: jax.pure_callback(lambda v: v[::-1], s, v))(values)
    show(f"pure_{dtype}", flipped)
several = (jax.ShapeDtypeStruct((), jnp.int32), {"m": jax.ShapeDtypeStruct((2,), jnp.float32)})
many = jax.jit(
    lambda x: jax.pure_callback(lambda x: (np.int32(7), {"m": np.asarray(x)[:2]}), several, x)
)
show("pure_tree", many(x))
empty = jax.ShapeDtypeStruct((0, 2), jnp.float32)
show(
    "pure_empty", jax.jit(lambda: jax.pure_callback(lambda: np.zeros((0, 2), np.float32), empty))()
)
large = jax.ShapeDtypeStruct((512, 512), jnp.float32)
doubled = jax.jit(lambda v: jax.pure_callback(lambda v: np.asarray(v) * 2, large, v))
show("pure_large", doubled(jnp.ones((512, 512))).sum())


@jax.custom_jvp
def host_square(x):
    shape = jax.ShapeDtypeStruct(jnp.shape(x), jnp.float32)
    return jax.pure_callback(lambda x: np.asarray(x) ** 2, shape, x, vmap_method="expand_dims")


host_square.defjvp(lambda p, t: (host_square(*p), 2 * p[0] * t[0]))
show("pure_grad", jax.jit(jax.grad(lambda x: host_square(x) * 3))(2.0))
show("pure_grad_vmap", jax.vmap(jax.grad(host_square))(jnp.arange(3.0)))


# A callback may use JAX itself.
def with_jax(x):
    return np.asarray(jax.jit(jnp.cumsum)(jnp.asarray(x)))


nested = jax.jit(lambda x: jax.pure_callback(with_jax, jax.ShapeDtypeStruct((3,), jnp.float32), x))
show("pure_uses_jax", nested(x))

# ---------------------------------------------------------------- io_callback

log = []


def note(x):
    log.append(int(x))
    return np.int32(len(log))


number = jax.ShapeDtypeStruct((), jnp.int32)


@jax.jit
def in_order(n):
    first = io_callback(note, number, n, ordered=True)
    second = io_callback(note, number, n + 10, ordered=True)
    return first, second


show("io_ordered", [in_order(1), in_order(2)])
print("io_log", log, flush=True)
log.clear()
scanned = jax.jit(
    lambda: jax.lax.scan(
        lambda c, x: (c, io_callback(note, number, x, ordered=True)), 0, jnp.arange(4)
    )
)
show("io_scan", scanned())
print("io_scan_log", log, flush=True)
log.clear()
show("io_unordered", jax.jit(lambda x: io_callback(note, number, x))(5))
jax.jit(jax.vmap(lambda x: io_callback(note, number, x)))(jnp.arange(3))
jax.effects_barrier()
print("io_unordered_log", log[0], sorted(log[1:]), flush=True)
log.clear()
jax.jit(lambda x: io_callback(lambda x: log.append(int(x)), None, x, ordered=True))(4)
jax.effects_barrier()
print("io_nothing_log", log, flush=True)


# A process that a function starts can be stopped like any other.
def blocked_signals(x):
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    log.extend(line for line in status.splitlines() if line.startswith("SigBlk"))


log.clear()
jax.jit(lambda x: io_callback(blocked_signals, None, x, ordered=True))(4)
jax.effects_barrier()
print("child", *log, flush=True)

# ---------------------------------------------------------------- errors


def refuse(x):
    raise ValueError(f"not with {int(x)}")


show_error("error_unjitted", lambda: jax.pure_callback(refuse, number, 1))


def last_words(name, call):
    """The message differs in what stands around it; the user's own words must be in it."""
    try:
        jax.block_until_ready(call())
        jax.effects_barrier()
    except Exception as error:
        print(name, type(error).__name__, "ValueError: not with 3" in str(error), flush=True)
    else:
        print(name, "no error", flush=True)


last_words("error_pure", lambda: jax.jit(lambda x: jax.pure_callback(refuse, number, x))(3))
last_words("error_io", lambda: jax.jit(lambda x: io_callback(refuse, number, x))(3))
show("after_errors", chatty(1))
jax.effects_barrier()
