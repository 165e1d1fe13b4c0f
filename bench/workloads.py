"""The workloads of the experiments: sixteen models, and their training at any batch size.

A workload's name is its model and its batch size: `vae_64`. The models are small enough for a CPU,
and differ as real ones do: in how long a step takes, how much of it uses more than one core, and
how much of their memory is needed between steps.
"""

import functools
import itertools

# Different batches to train with; enough that none is special.
BATCHES = 16


class Workload:
    """A model with its loss, and host data for batches of one size."""

    def __init__(self, model, loss, batches):
        self.model, self.loss, self.batches = model, loss, batches

    def start(self):
        """Parameters, as a new training job makes them."""
        import jax

        return self.model.init(jax.random.key(0), self.batches[0][0])


def classifier(model, points, classes, rng, symbols=None):
    """A workload that tells classes apart; symbols are followed by others."""
    import numpy as np
    import optax

    def loss(params, x, y):
        logits = model.apply(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    if symbols is not None:
        batches = [(line[:, :-1].copy(), line[:, 1:].copy()) for line in symbols]
    else:
        labels = rng.integers(classes, size=points.shape[:2]).astype(np.int32)
        batches = list(zip(points, labels))
    return Workload(model, loss, batches)


def pictures(rng, batch, side):
    import numpy as np

    return rng.normal(size=(BATCHES, batch, side, side, 3)).astype(np.float32)


def mlp(batch, rng, features, widths, classes=10):
    import numpy as np
    from flax import linen as nn

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x):
            for width in widths:
                x = nn.relu(nn.Dense(width)(x))
            return nn.Dense(classes)(x)

    points = rng.normal(size=(BATCHES, batch, features)).astype(np.float32)
    return classifier(MLP(), points, classes, rng)


def cnn(batch, rng, side, channels, classes=10):
    from flax import linen as nn

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x):
            for count in channels:
                x = nn.relu(nn.Conv(count, (3, 3))(x))
                x = nn.avg_pool(x, (2, 2), strides=(2, 2))
            return nn.Dense(classes)(x.reshape((x.shape[0], -1)))

    return classifier(CNN(), pictures(rng, batch, side), classes, rng)


def resnet(batch, rng, side, channels, blocks, classes=10):
    from flax import linen as nn

    class Block(nn.Module):
        channels: int

        @nn.compact
        def __call__(self, x):
            y = nn.relu(nn.GroupNorm(num_groups=4)(nn.Conv(self.channels, (3, 3))(x)))
            y = nn.GroupNorm(num_groups=4)(nn.Conv(self.channels, (3, 3))(y))
            if x.shape != y.shape:
                x = nn.Conv(self.channels, (1, 1))(x)
            return nn.relu(x + y)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x):
            for count in channels:
                for _ in range(blocks):
                    x = Block(count)(x)
                x = nn.avg_pool(x, (2, 2), strides=(2, 2))
            return nn.Dense(classes)(x.mean((1, 2)))

    return classifier(ResNet(), pictures(rng, batch, side), classes, rng)


def vae(batch, rng, features, width, latent):
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax import linen as nn

    class VAE(nn.Module):
        @nn.compact
        def __call__(self, x, noise=None):
            hidden = nn.relu(nn.Dense(width)(x))
            mean, spread = nn.Dense(latent)(hidden), nn.Dense(latent)(hidden)
            z = mean if noise is None else mean + jnp.exp(spread / 2) * noise
            return nn.Dense(features)(nn.relu(nn.Dense(width)(z))), mean, spread

    model = VAE()

    def loss(params, x, seed):
        noise = jax.random.normal(jax.random.key(seed), (batch, latent))
        logits, mean, spread = model.apply(params, x, noise)
        rebuilt = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)
        divergence = 0.5 * (jnp.exp(spread) + mean**2 - 1 - spread).sum(-1)
        return (rebuilt + divergence).mean()

    points = rng.uniform(size=(BATCHES, batch, features)).astype(np.float32)
    return Workload(model, loss, list(zip(points, np.arange(BATCHES, dtype=np.uint32))))


def superres(batch, rng, side, channels, factor=2):
    """Pictures of `factor` times the width and height."""
    from flax import linen as nn

    class SuperResolution(nn.Module):
        @nn.compact
        def __call__(self, x):
            for count in channels:
                x = nn.relu(nn.Conv(count, (3, 3))(x))
            x = nn.Conv(3 * factor**2, (3, 3))(x)
            n, height, width, _ = x.shape
            x = x.reshape(n, height, width, factor, factor, 3).transpose(0, 1, 3, 2, 4, 5)
            return x.reshape(n, height * factor, width * factor, 3)

    model = SuperResolution()

    def loss(params, x, y):
        return ((model.apply(params, x) - y) ** 2).mean()

    large = pictures(rng, batch, side * factor)
    return Workload(model, loss, [(y[:, ::factor, ::factor].copy(), y) for y in large])


def lstm(batch, rng, length, vocabulary, width):
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

    symbols = rng.integers(vocabulary, size=(BATCHES, batch, length + 1)).astype(np.int32)
    return classifier(LSTM(), None, vocabulary, rng, symbols)


def seq2seq(batch, rng, length, vocabulary, width):
    """Reads a sequence and says it backwards."""
    import numpy as np
    from flax import linen as nn

    class Seq2Seq(nn.Module):
        @nn.compact
        def __call__(self, symbols):
            x = nn.Embed(vocabulary, width)(symbols)
            # As for the LSTM.
            cell = functools.partial(
                nn.OptimizedLSTMCell, width, recurrent_kernel_init=nn.initializers.lecun_normal()
            )
            read, _ = nn.RNN(cell(), return_carry=True)(x)
            # Each symbol is said after the one before it.
            said = nn.Embed(vocabulary, width)(symbols[:, ::-1])
            x = nn.RNN(cell())(said, initial_carry=read)
            return nn.Dense(vocabulary)(x)

    symbols = rng.integers(vocabulary, size=(BATCHES, batch, length + 1)).astype(np.int32)
    return classifier(Seq2Seq(), None, vocabulary, rng, symbols)


def transformer(batch, rng, length, vocabulary, width, layers):
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

    symbols = rng.integers(vocabulary, size=(BATCHES, batch, length + 1)).astype(np.int32)
    return classifier(Transformer(), None, vocabulary, rng, symbols)


MODELS = {
    "mlp": functools.partial(mlp, features=64, widths=(256, 256)),
    "mlp_wide": functools.partial(mlp, features=256, widths=(1024, 1024)),
    "mlp_deep": functools.partial(mlp, features=64, widths=(128,) * 8),
    "cnn": functools.partial(cnn, side=16, channels=(16, 32)),
    "cnn_wide": functools.partial(cnn, side=24, channels=(32, 64)),
    "cnn_deep": functools.partial(cnn, side=32, channels=(8, 16, 32)),
    "resnet": functools.partial(resnet, side=16, channels=(16, 32), blocks=1),
    "resnet_deep": functools.partial(resnet, side=16, channels=(16, 32), blocks=3),
    "vae": functools.partial(vae, features=784, width=256, latent=16),
    "superres": functools.partial(superres, side=16, channels=(16, 8)),
    "lstm": functools.partial(lstm, length=24, vocabulary=32, width=32),
    "lstm_wide": functools.partial(lstm, length=32, vocabulary=64, width=64),
    "seq2seq": functools.partial(seq2seq, length=24, vocabulary=32, width=64),
    "transformer": functools.partial(transformer, length=32, vocabulary=64, width=64, layers=1),
    "transformer_deep": functools.partial(
        transformer, length=32, vocabulary=64, width=64, layers=3
    ),
    "transformer_wide": functools.partial(
        transformer, length=32, vocabulary=64, width=128, layers=2
    ),
}


def make(name):
    """The workload of this name: `vae_64`."""
    import numpy as np

    model, _, batch = name.rpartition("_")
    return MODELS[model](int(batch), np.random.default_rng(0))


class Training:
    """A training job: parameters, the optimizer's state and the jitted step."""

    def __init__(self, name, rate=1e-3):
        import jax
        import optax

        workload = make(name)
        # The rate is an argument of the step, and no constant of the start either, so that all
        # trials of a sweep run the same programs.
        optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=0.0)

        def step(state, x, y):
            params, momenta = state
            loss, grads = jax.value_and_grad(workload.loss)(params, x, y)
            updates, momenta = optimizer.update(grads, momenta, params)
            return (optax.apply_updates(params, updates), momenta), loss

        @jax.jit
        def start():
            params = workload.start()
            return params, optimizer.init(params)

        self.step = jax.jit(step, donate_argnums=0)
        params, momenta = start()
        momenta.hyperparams["learning_rate"] = jax.numpy.float32(rate)
        self.state = params, momenta
        self.batches = itertools.cycle(workload.batches)

    def advance(self, steps):
        """Sends steps and returns the loss of the last one."""
        for _ in range(steps):
            self.state, loss = self.step(self.state, *next(self.batches))
        return loss
