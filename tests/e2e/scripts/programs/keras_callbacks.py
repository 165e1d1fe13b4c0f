"""Keras: fit with the callbacks that people use, saving, early stopping, a custom layer."""

import os
import tempfile

os.environ["KERAS_BACKEND"] = "jax"

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import ops  # noqa: E402

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
x = rng.normal(size=(256, 10)).astype(np.float32)
y = (x[:, :3].sum(1) > 0).astype(np.float32)
directory = tempfile.mkdtemp()


class Gated(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.value, self.gate = keras.layers.Dense(units), keras.layers.Dense(units)

    def call(self, inputs):
        return self.value(inputs) * ops.sigmoid(self.gate(inputs))


inputs = keras.Input((10,))
hidden = keras.layers.LayerNormalization()(Gated(16)(inputs))
outputs = keras.layers.Dense(1, activation="sigmoid")(hidden)
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.AdamW(1e-2), "binary_crossentropy", metrics=["accuracy", "auc"])


class Say(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        print("begins", flush=True)

    def on_epoch_end(self, epoch, logs=None):
        rate = float(self.model.optimizer.learning_rate)
        print(
            f"epoch {epoch} rate {rate:.5f} loss {logs['loss']:.2f} auc {logs['auc']:.2f}",
            flush=True,
        )


batches = []
history = model.fit(
    x,
    y,
    batch_size=32,
    epochs=6,
    validation_split=0.25,
    verbose=0,
    callbacks=[
        Say(),
        keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: batches.append(batch)
        ),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.ModelCheckpoint(f"{directory}/best.weights.h5", save_weights_only=True),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=3, restore_best_weights=True),
        keras.callbacks.CSVLogger(f"{directory}/log.csv"),
        keras.callbacks.TerminateOnNaN(),
    ],
)
print("batches", len(batches), "epochs", len(history.epoch))
with open(f"{directory}/log.csv") as log:
    print("logged", log.readline().strip())
print("saved", sorted(os.listdir(directory)))
loss, accuracy, auc = model.evaluate(x, y, verbose=0)
print(f"evaluate {loss:.2f} {accuracy:.2f} {auc:.2f}")
model.load_weights(f"{directory}/best.weights.h5")
print("predict", " ".join(f"{p:.2f}" for p in model.predict(x[:5], verbose=0)[:, 0]))
