"""Ordered effects: programs that take and give tokens, exported ones among them.

The effect is made by hand, so that nothing but the tokens is needed for it. JAX gives the first
token as an array of no booleans; `jit` programs take such an array, those of exported functions a
token.
"""

import jax
import jax.numpy as jnp
from jax import export
from jax._src import core, effects
from jax._src.interpreters import mlir
from jax._src.lib.mlir.dialects import hlo

from report import report


class Order(effects.Effect):
    def __str__(self):
        return "Order"

    def __eq__(self, other):
        return isinstance(other, Order)

    def __hash__(self):
        return hash(Order)


for kind in (
    effects.lowerable_effects,
    effects.ordered_effects,
    effects.control_flow_allowed_effects,
):
    kind.add_type(Order)

order = Order()
in_order_p = core.Primitive("in_order")
in_order_p.def_effectful_abstract_eval(lambda x: (x, {order}))


def _lower(context, x):
    token = hlo.after_all([context.tokens_in.get(order)])
    context.set_tokens_out(mlir.TokenSet({order: token}))
    return [x]


mlir.register_lowering(in_order_p, _lower)


@jax.jit
def step(x):
    return in_order_p.bind(jnp.sin(x)) * 2


@jax.jit
def steps(x):
    return jax.lax.fori_loop(0, 3, lambda _, y: in_order_p.bind(y + 1), x)


x = jnp.arange(8.0)
exported = export.export(step)(jax.ShapeDtypeStruct(x.shape, x.dtype))
assert "!stablehlo.token" in exported.mlir_module()
# Each takes the token that the one before it gave, whichever form that has.
for i in range(3):
    x = step(x)
    x = exported.call(x)
    x = exported.call(x)
    x = steps(x)
    report(f"round {i}", x)
jax.effects_barrier()
print("in order")
