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

# Training data: enough different batches that none is special.
BATCHES = 16


def make_mlp(batch, features, widths, classes):
    """Model and batches of (points, labels)."""
    import numpy as np
    from flax import linen as nn

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x):
            for width in widths:
                x = nn.relu(nn.Dense(width)(x))
            return nn.Dense(classes)(x)

    rng = np.random.default_rng(0)
    points = rng.normal(size=(BATCHES, batch, features)).astype(np.float32)
    labels = rng.integers(classes, size=(BATCHES, batch)).astype(np.int32)
    return MLP(), list(zip(points, labels))


def make_transformer(batch, length, vocabulary, width, layers):
    """Model and batches of (symbols, the symbols that follow them)."""
    import jax.numpy as jnp
    import numpy as np
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, mask):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, y, mask=mask)
            y = nn.LayerNorm()(x)
            return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(y)))

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, symbols):
            positions = nn.Embed(length, width)(jnp.arange(length))
            x = nn.Embed(vocabulary, width)(symbols) + positions
            mask = nn.make_causal_mask(symbols)
            for _ in range(layers):
                x = Block()(x, mask)
            return nn.Dense(vocabulary)(nn.LayerNorm()(x))

    rng = np.random.default_rng(0)
    lines = rng.integers(vocabulary, size=(BATCHES, batch, length + 1)).astype(np.int32)
    return Transformer(), [(line[:, :-1].copy(), line[:, 1:].copy()) for line in lines]


def make_cnn(batch, side, channels, classes):
    """Model and batches of (pictures, labels)."""
    import numpy as np
    from flax import linen as nn

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x):
            for count in channels:
                x = nn.relu(nn.Conv(count, (3, 3))(x))
                x = nn.avg_pool(x, (2, 2), strides=(2, 2))
            return nn.Dense(classes)(x.reshape((x.shape[0], -1)))

    rng = np.random.default_rng(0)
    pictures = rng.normal(size=(BATCHES, batch, side, side, 3)).astype(np.float32)
    labels = rng.integers(classes, size=(BATCHES, batch)).astype(np.int32)
    return CNN(), list(zip(pictures, labels))


def make_lstm(batch, length, vocabulary, width):
    """Model and batches of (symbols, the symbols that follow them)."""
    import numpy as np
    from flax import linen as nn

    class LSTM(nn.Module):
        @nn.compact
        def __call__(self, symbols):
            x = nn.Embed(vocabulary, width)(symbols)
            # The default wants a QR decomposition, which the plugin alone does not have.
            kernels = nn.initializers.lecun_normal()
            x = nn.RNN(nn.OptimizedLSTMCell(width, recurrent_kernel_init=kernels))(x)
            return nn.Dense(vocabulary)(x)

    rng = np.random.default_rng(0)
    lines = rng.integers(vocabulary, size=(BATCHES, batch, length + 1)).astype(np.int32)
    return LSTM(), [(line[:, :-1].copy(), line[:, 1:].copy()) for line in lines]


def make(name):
    """The model of this name, and its batches."""
    for models, maker in (
        (MLPS, make_mlp),
        (TRANSFORMERS, make_transformer),
        (CNNS, make_cnn),
        (LSTMS, make_lstm),
    ):
        if name in models:
            return maker(**models[name])
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
