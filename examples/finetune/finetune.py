"""Train a network of keras.applications from a file, then fine-tune it: plain Keras, no pipeline.

python examples/finetune/finetune.py
"""

from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

from trainer_module import TrainingLoop, TrainStep


def build() -> keras.Model:
    """Return a classifier: augmentation, then MobileNetV2's first layers with random weights."""
    whole = keras.applications.MobileNetV2((32, 32, 3), include_top=False, weights=None)
    # Deeper layers see a picture as 2 x 2 pixels.
    network = keras.Model(whole.input, whole.get_layer("block_3_expand_relu").output)
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.9  # that of MobileNetV2, 0.999, takes thousands of steps
    pixels = keras.Input((32, 32, 3), dtype="uint8")
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(pixels)
    x = keras.layers.RandomTranslation(0.1, 0.1, seed=1)(x)  # in training alone
    x = keras.layers.GlobalAveragePooling2D()(network(x))
    return keras.Model(pixels, keras.layers.Dense(10, activation="softmax")(x))


def main(
    path: Path = Path("output/finetune.keras"), rows: int = 1440, epochs: int = 30
) -> dict[str, float]:
    """Print and return the accuracy on the other rows, by what BatchNormalization computes."""
    keras.utils.set_random_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    images = np.kron(pixels.reshape(-1, 8, 8, 1) * 15, np.ones((1, 4, 4, 3))).astype("uint8")
    path.parent.mkdir(parents=True, exist_ok=True)
    build().save(path)
    found = {}
    for batch_norm, rate, passes in (("ghost", 3e-3, epochs), ("frozen", 3e-4, epochs // 3)):
        model, optimizer = keras.models.load_model(path), keras.optimizers.Adam(rate)
        loss = "sparse_categorical_crossentropy"
        step = TrainStep(model, optimizer, loss, micro_batch_size=64, batch_norm=batch_norm)
        data = images[:rows], labels[:rows]
        TrainingLoop(step, data, batch_size=256, epochs=passes, progress=False).fit()
        predicted = model.predict(images[rows:], verbose=0).argmax(axis=1)
        found[batch_norm] = float(np.mean(predicted == labels[rows:]))
        print(f"{batch_norm}: accuracy {found[batch_norm]:.3f}")
        model.save(path)
    return found


if __name__ == "__main__":
    main()
