"""Models of about known step times, their data, and how they train."""

import itertools

# Sizes give steps of about 0.1, 1, 10 and 100 ms on two cores of a small cloud machine.
MLPS = {
    "mlp_100us": {"batch": 16, "features": 16, "widths": (32,), "classes": 8},
    "mlp_1ms": {"batch": 64, "features": 64, "widths": (256, 256), "classes": 10},
    "mlp_10ms": {"batch": 128, "features": 256, "widths": (1024, 1024), "classes": 10},
}
TRANSFORMERS = {
    "transformer_3ms": {"batch": 4, "length": 32, "vocabulary": 64, "width": 64, "layers": 2},
    "transformer_10ms": {"batch": 32, "length": 32, "vocabulary": 64, "width": 64, "layers": 2},
    "transformer_100ms": {"batch": 32, "length": 96, "vocabulary": 64, "width": 96, "layers": 2},
}

CNNS = {
    "cnn_10ms": {"batch": 48, "side": 16, "channels": (16, 32), "classes": 10},
    "cnn_100ms": {"batch": 64, "side": 24, "channels": (32, 64), "classes": 10},
}
LSTMS = {
    "lstm_3ms": {"batch": 16, "length": 24, "vocabulary": 32, "width": 32},
    "lstm_10ms": {"batch": 16, "length": 32, "vocabulary": 64, "width": 64},
}


def make(name):
    """The model of this name, and its batches."""
    import numpy as np

    import workloads

    for models, maker in (
        (MLPS, workloads.mlp),
        (TRANSFORMERS, workloads.transformer),
        (CNNS, workloads.cnn),
        (LSTMS, workloads.lstm),
    ):
        if name in models:
            made = maker(rng=np.random.default_rng(0), **models[name])
            return made.model, made.batches
    raise KeyError(name)


def make_training(name, donate):
    """What makes the state at the start, the jitted step, and batches, as a training script has
    them.
    """
    import jax
    import optax

    model, batches = make(name)
    optimizer = optax.adam(1e-3)

    def train_step(state, x, y):
        params, momenta = state

        def loss_of(params):
            logits = model.apply(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, momenta = optimizer.update(grads, momenta, params)
        return (optax.apply_updates(params, updates), momenta), loss

    def start():
        params = model.init(jax.random.key(0), batches[0][0])
        return params, optimizer.init(params)

    return start, jax.jit(train_step, donate_argnums=0 if donate else ()), batches


class Training:
    """A model, its optimizer's state and its jitted step."""

    def __init__(self, name, donate=True):
        import jax

        start, self.step, batches = make_training(name, donate)
        self.state = start()
        self.batches = itertools.cycle(batches)
        self.arguments = len(jax.tree.leaves(self.state)) + len(batches[0])

    def advance(self, steps):
        """Sends steps, each with a batch from the host, and returns the loss of the last one."""
        step, state, batches = self.step, self.state, self.batches
        for _ in range(steps):
            state, loss = step(state, *next(batches))
        self.state = state
        return loss
