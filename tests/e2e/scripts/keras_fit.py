"""Keras 3 on JAX: fit, evaluate, predict, save, load."""

import os
import tempfile

os.environ["KERAS_BACKEND"] = "jax"

import keras  # noqa: E402
import numpy as np  # noqa: E402

from report import report  # noqa: E402

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
x = rng.normal(size=(512, 12, 12, 1)).astype(np.float32)
y = (x.mean(axis=(1, 2, 3)) > 0).astype(np.int32)

model = keras.Sequential(
    [
        keras.Input((12, 12, 1)),
        keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(2),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(x, y, batch_size=64, epochs=3, validation_split=0.25, verbose=0)
report("history", {k: np.asarray(v) for k, v in sorted(history.history.items())})
report("evaluate", np.asarray(model.evaluate(x, y, verbose=0)))
predicted = model.predict(x[:32], verbose=0)
report("predict", predicted)

path = os.path.join(tempfile.mkdtemp(), "model.keras")
model.save(path)
loaded = keras.models.load_model(path)
np.testing.assert_array_equal(loaded.predict(x[:32], verbose=0), predicted)
report("loaded", loaded.get_weights())
