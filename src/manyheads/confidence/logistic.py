"""Logistic regression by Newton's method, and the monotone map that calibrates its scores."""

import numpy as np

from manyheads.confidence.ragged import Floats

MAX_ITERATIONS = 50
TOLERANCE = 1e-8  # of the largest change of a coefficient


def sigmoid(scores: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)))


def fit_logistic(inputs_NF: Floats, labels_N: Floats, weights_N: Floats, l2: float) -> Floats:
    """Return the coefficients that minimize the weighted log loss plus l2 / 2 |w|^2, the bias last. [F + 1]

    The bias is not penalized. Newton's steps are halved until the loss falls.
    """
    inputs = np.concatenate((inputs_NF, np.ones((len(inputs_NF), 1))), 1)
    penalty = np.full(inputs.shape[1], l2)
    penalty[-1] = 1e-6  # so that labels of one kind alone have a solution

    def loss(coefficients: Floats) -> float:
        scores = inputs @ coefficients
        losses = np.logaddexp(0, scores) - labels_N * scores
        return float(weights_N @ losses + 0.5 * penalty @ coefficients**2)

    coefficients = np.zeros(inputs.shape[1])
    current = loss(coefficients)
    for _ in range(MAX_ITERATIONS):
        probabilities = sigmoid(inputs @ coefficients)
        gradient = inputs.T @ (weights_N * (probabilities - labels_N)) + penalty * coefficients
        curvature = weights_N * np.maximum(1e-9, probabilities * (1 - probabilities))
        step = np.linalg.solve((inputs * curvature[:, None]).T @ inputs + np.diag(penalty), gradient)
        while (new := loss(coefficients - step)) > current and np.abs(step).max() > TOLERANCE:
            step /= 2
        coefficients, current = coefficients - step, new
        if np.abs(step).max() < TOLERANCE:
            break
    return np.asarray(coefficients)


def fit_monotone(scores_N: Floats, labels_N: Floats, weights_N: Floats) -> tuple[Floats, Floats]:
    """Return the distinct scores and the rising values closest to their labels: isotonic regression.

    Neighbors whose labels fall are pooled until none do.
    """
    order = np.argsort(scores_N, kind="stable")
    values: list[float] = []
    weights: list[float] = []
    counts: list[int] = []
    for label, weight in zip(labels_N[order].tolist(), weights_N[order].tolist(), strict=True):
        values.append(label)
        weights.append(weight)
        counts.append(1)
        while len(values) > 1 and values[-2] >= values[-1]:
            total = weights[-2] + weights[-1]
            values[-2] = (weights[-2] * values[-2] + weights[-1] * values[-1]) / total
            weights[-2], counts[-2] = total, counts[-2] + counts[-1]
            del values[-1], weights[-1], counts[-1]
    return scores_N[order], np.repeat(values, counts)
