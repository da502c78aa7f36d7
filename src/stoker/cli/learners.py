"""The demo's models: a small convolutional network with PyTorch, or a perceptron in NumPy if that is not installed."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Learner(Protocol):
    """What the demo trains; images are float32 (rows, height, width, channels), normalised."""

    name: str

    def learn(self, images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
        """One step; returns the loss."""

    def classify(self, images: NDArray[np.float32]) -> NDArray[np.int64]:
        """The most likely class of each image."""


def make_learner(classes: int, side: int) -> Learner:
    """The best model that can be made here."""
    try:
        return ConvNet(classes)
    except ImportError:
        return Perceptron(classes, side)


class ConvNet:
    """Three convolutions, averaged over sixteen parts of the picture, and a linear layer."""

    def __init__(self, classes: int) -> None:
        import torch
        from torch import nn

        self.name = f"small convolutional network (torch {torch.__version__})"
        self._torch = torch
        torch.manual_seed(0)
        torch.set_num_threads(1)  # the model is tiny: a second thread would only take the loader's core
        layers: list[Any] = []
        for inputs, outputs in ((3, 16), (16, 32), (32, 48)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self._model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48 * 16, classes))
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=3e-4)

    def learn(self, images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
        self._model.train()
        loss = self._torch.nn.functional.cross_entropy(self._scores(images), self._torch.from_numpy(labels))
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return float(loss.detach())

    def classify(self, images: NDArray[np.float32]) -> NDArray[np.int64]:
        self._model.eval()
        with self._torch.no_grad():
            best: NDArray[np.int64] = self._scores(images).argmax(1).numpy()
            return best

    def _scores(self, images: NDArray[np.float32]) -> Any:
        return self._model(self._torch.from_numpy(images).permute(0, 3, 1, 2))


class Perceptron:
    """Two layers on the picture at an eighth of its size, trained with Adam."""

    _POOL = 8
    _HIDDEN = 40  # small enough that BLAS does not start threads, which would take the loader's cores

    def __init__(self, classes: int, side: int) -> None:
        self.name = "two-layer perceptron (NumPy; with PyTorch installed it is a convolutional network)"
        rng = np.random.default_rng(0)
        inputs = 3 * (side // self._POOL) ** 2
        self._weights = [_layer(rng, inputs, self._HIDDEN), _layer(rng, self._HIDDEN, classes)]
        self._means = [np.zeros_like(weights) for weights in self._weights]
        self._squares = [np.zeros_like(weights) for weights in self._weights]
        self._steps = 0

    def learn(self, images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
        inputs, hidden, scores = self._forward(images)
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -float(np.log(chances[rows, labels] + 1e-9).mean())
        chances[rows, labels] -= 1
        chances /= len(labels)
        back = (chances @ self._weights[1][:-1].T) * (hidden[:, :-1] > 0)
        self._adam([inputs.T @ back, hidden.T @ chances])
        return loss

    def classify(self, images: NDArray[np.float32]) -> NDArray[np.int64]:
        best: NDArray[np.int64] = self._forward(images)[2].argmax(1)
        return best

    def _forward(self, images: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        rows, height, width, channels = images.shape
        pool = self._POOL
        small = images.reshape(rows, height // pool, pool, width // pool, pool, channels).mean((2, 4))
        inputs = _with_one(small.reshape(rows, -1))
        hidden = _with_one(np.maximum(inputs @ self._weights[0], 0))
        return inputs, hidden, hidden @ self._weights[1]

    def _adam(self, gradients: list[NDArray[Any]]) -> None:
        self._steps += 1
        for weights, mean, square, gradient in zip(self._weights, self._means, self._squares, gradients):
            mean += 0.1 * (gradient - mean)
            square += 0.01 * (gradient**2 - square)
            scale = np.sqrt(square / (1 - 0.99**self._steps)) + 1e-8
            weights -= 6e-4 * (mean / (1 - 0.9**self._steps)) / scale


def _layer(rng: np.random.Generator, inputs: int, outputs: int) -> NDArray[np.float32]:
    """Weights, and a last row for the constant input."""
    weights: NDArray[np.float32] = rng.standard_normal((inputs + 1, outputs), np.float32) * np.float32(inputs**-0.5)
    return weights


def _with_one(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values, np.ones((len(values), 1), values.dtype)], 1)
