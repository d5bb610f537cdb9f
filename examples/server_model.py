# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The small hybrid model of server.py, a layer of KDA with its convolution and one of latent
attention: its weights, what the host computes of it, and the whole of it in float64."""
from __future__ import annotations

import numpy as np

WORDS, E, H, D, TAPS, KEYS, VALUES = 24, 16, 2, 16, 4, 576, 512
CHANNELS = 3 * H * D


class Model:
    def __init__(self) -> None:
        noise = np.random.default_rng(1)
        def matrix(rows: int, columns: int, scale: float = 1.7) -> np.ndarray:
            return noise.uniform(-1, 1, (rows, columns)) * scale / np.sqrt(columns)
        self.embed = matrix(WORDS, E, 1.5 * np.sqrt(E))
        self.qkv, self.gate, self.beta = matrix(CHANNELS, E), matrix(H * D, E), matrix(H, E)
        self.query, self.key, self.head = matrix(H * KEYS, E), matrix(KEYS, E), matrix(WORDS, E)
        # A word says most of what comes next.
        self.mixed, self.out = matrix(E, H * D, 0.8), matrix(E, H * VALUES, 0.8)
        self.filter = matrix(CHANNELS, TAPS).astype(np.float16).astype(np.float64)

    def before_mixing(self, words):
        stream = self.embed[words]
        gate = -0.3 * np.abs(stream @ self.gate.T)  # the logarithm of a decay
        beta = 1 / (1 + np.exp(-stream @ self.beta.T))
        return stream, stream @ self.qkv.T, gate, beta

    def before_attending(self, stream, mixed):
        stream = stream + mixed @ self.mixed.T
        return stream, stream @ self.query.T, stream @ self.key.T

    def logits(self, stream, attended):
        return (stream + attended @ self.out.T) @ self.head.T

    def reference(self, words):
        """Returns the logits behind each word, by the definitions."""
        stream, qkv, gate, beta = self.before_mixing(words)
        padded = np.concatenate([np.zeros((TAPS - 1, CHANNELS)), qkv])
        z = sum(self.filter[:, i] * padded[i:i + len(words)] for i in range(TAPS))
        q, k, v = np.moveaxis((z / (1 + np.exp(-z))).reshape(-1, 3, H, D), 1, 0)
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
        state, mixed = np.zeros((H, D, D)), np.zeros((len(words), H, D))
        for t in range(len(words)):
            state *= np.exp(gate[t].reshape(H, D, 1))
            error = v[t] - np.einsum("hde,hd->he", state, k[t])
            state += np.einsum("h,hd,he->hde", beta[t], k[t], error)
            mixed[t] = np.einsum("hde,hd->he", state, q[t]) / np.sqrt(D)
        stream, query, key = self.before_attending(stream, mixed.reshape(-1, H * D))
        scores = np.einsum("ihd,jd->hij", query.reshape(-1, H, KEYS), key) / np.sqrt(KEYS)
        weights = np.exp(scores) * np.tril(np.ones(scores.shape[1:]))
        weights /= weights.sum(-1, keepdims=True)
        return self.logits(stream, np.einsum("hij,jd->ihd", weights, key[:, :VALUES])
                           .reshape(-1, H * VALUES))
