// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A causal convolution, causal attention and a kernel of one's own, each held against its formula in double.
'use strict';
const lathe = require(process.argv[2]);
const context = lathe.context();

function values(count, step) {
  const values = Float32Array.from({length: count}, (_, i) => (i * step % 101) / 50 - 1);
  return [values, lathe.upload(context, values)];
}

function compare(what, buffer, expected) {
  const error = lathe.download(buffer).reduce((worst, found, i) => Math.max(worst, Math.abs(found - expected(i))), 0);
  console.log(`${what}: largest error ${error.toExponential(1)}`);
  if (!(error < 1e-5)) throw new Error(`${what} is wrong`);
}

function convolution() {
  const [T, D, W] = [100, 64, 4];
  const conv = lathe.operator(context, 'causal_conv1d', {activation: 'silu'});
  const [x, onX] = values(T * D, 37), [weight, onWeight] = values(D * W, 53);
  const y = lathe.upload(context, new Float32Array(T * D));
  lathe.run(conv, {x: [onX, [1, T, D]], weight: [onWeight, [D, W]], y: [y, [1, T, D]]});
  compare('causal_conv1d', y, i => {
    const [row, channel] = [Math.floor(i / D), i % D];
    let z = 0;
    for (let tap = Math.max(0, W - 1 - row); tap < W; ++tap) {
      z += weight[channel * W + tap] * x[i + (tap + 1 - W) * D];
    }
    return z / (1 + Math.exp(-z));
  });
}

function attention() {
  const [T, D] = [48, 32];
  const attention = lathe.operator(context, 'flash_attention', {causal: '1'});
  const [q, onQ] = values(T * D, 37), [k, onK] = values(T * D, 29), [v, onV] = values(T * D, 53);
  const out = lathe.upload(context, new Float32Array(T * D)), lse = lathe.upload(context, new Float32Array(T));
  const shape = [1, T, 1, D];
  lathe.run(attention, {q: [onQ, shape], k: [onK, shape], v: [onV, shape], out: [out, shape], lse: [lse, [1, 1, T]]});
  compare('flash_attention', out, i => {
    const row = Math.floor(i / D);
    let sum = 0, total = 0;
    for (let j = 0; j <= row; ++j) {
      let score = 0;
      for (let c = 0; c < D; ++c) score += q[row * D + c] * k[j * D + c];
      const weight = Math.exp(score / Math.sqrt(D));
      sum += weight;
      total += weight * v[j * D + i % D];
    }
    return total / sum;
  });
}

function ownKernel() {
  const add = lathe.kernel(context, '../../own_kernels/add.cuh');
  const [x, onX] = values(1000, 37), [y, onY] = values(1000, 53);
  const z = lathe.upload(context, new Float32Array(1000));
  lathe.run(add, {x: [onX, [1000]], y: [onY, [1000]], z: [z, [1000]]});
  compare('own_kernel', z, i => x[i] + y[i]);
}

convolution();
attention();
ownKernel();
try {
  lathe.run(lathe.operator(context, 'causal_conv1d', {activation: 'relu'}), {});
} catch (refused) {
  console.log(`refused: ${refused.message}`);
}
