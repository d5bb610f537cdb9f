// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.IntToDoubleFunction;

/** A causal convolution, causal attention and a kernel of one's own, each held against its formula in double. */
final class Demo {
  static float[] values(int count, int step) {
    float[] values = new float[count];
    for (int i = 0; i < count; ++i) values[i] = i * step % 101 / 50f - 1;
    return values;
  }

  static void compare(String what, float[] found, IntToDoubleFunction expected) {
    double worst = 0;
    for (int i = 0; i < found.length; ++i) worst = Math.max(worst, Math.abs(found[i] - expected.applyAsDouble(i)));
    System.out.printf("%s: largest error %.1e%n", what, worst);
    if (!(worst < 1e-5)) throw new IllegalStateException(what + " is wrong");
  }

  static void convolution(Lathe lathe) {
    int t = 100, d = 64, w = 4;
    var plan = lathe.plan("causal_conv1d",
        Map.of("x", new long[] {-1, -1, d}, "weight", new long[] {d, w}, "y", new long[] {-1, -1, d}), Map.of("activation", "silu"));
    float[] x = values(t * d, 37), weight = values(d * w, 53);
    var y = lathe.upload(new float[t * d]);
    plan.run(Map.of("x", new Lathe.Tensor(lathe.upload(x), 1, t, d), "weight", new Lathe.Tensor(lathe.upload(weight), d, w),
        "y", new Lathe.Tensor(y, 1, t, d)));
    compare("causal_conv1d", lathe.download(y), i -> {
      double z = 0;
      for (int tap = Math.max(0, w - 1 - i / d); tap < w; ++tap) z += (double) weight[i % d * w + tap] * x[i + (tap + 1 - w) * d];
      return z / (1 + Math.exp(-z));
    });
  }

  static void attention(Lathe lathe) {
    int t = 48, d = 32;
    Map<String, long[]> shapes = new LinkedHashMap<>();
    for (String name : new String[] {"q", "k", "v", "out"}) shapes.put(name, new long[] {-1, -1, 1, d});
    shapes.put("lse", new long[] {-1, 1, -1});
    var plan = lathe.plan("flash_attention", shapes, Map.of("causal", "1"));
    float[] q = values(t * d, 37), k = values(t * d, 29), v = values(t * d, 53);
    var out = lathe.upload(new float[t * d]);
    plan.run(Map.of("q", new Lathe.Tensor(lathe.upload(q), 1, t, 1, d), "k", new Lathe.Tensor(lathe.upload(k), 1, t, 1, d),
        "v", new Lathe.Tensor(lathe.upload(v), 1, t, 1, d), "out", new Lathe.Tensor(out, 1, t, 1, d),
        "lse", new Lathe.Tensor(lathe.upload(new float[t]), 1, 1, t)));
    compare("flash_attention", lathe.download(out), i -> {
      double sum = 0, total = 0;
      for (int j = 0; j <= i / d; ++j) {
        double score = 0;
        for (int c = 0; c < d; ++c) score += (double) q[i / d * d + c] * k[j * d + c];
        double weight = Math.exp(score / Math.sqrt(d));
        sum += weight;
        total += weight * v[j * d + i % d];
      }
      return total / sum;
    });
  }

  static void ownKernel(Lathe lathe) throws java.io.IOException {
    String file = "../../own_kernels/add.cuh";
    String name = lathe.kernel(java.nio.file.Files.readString(java.nio.file.Path.of(file)), file);
    long[] varies = {-1};
    var plan = lathe.plan(name, Map.of("x", varies, "y", varies, "z", varies), Map.of());
    float[] x = values(1000, 37), y = values(1000, 53);
    var z = lathe.upload(new float[1000]);
    plan.run(Map.of("x", new Lathe.Tensor(lathe.upload(x), 1000), "y", new Lathe.Tensor(lathe.upload(y), 1000),
        "z", new Lathe.Tensor(z, 1000)));
    compare("own_kernel", lathe.download(z), i -> (double) x[i] + y[i]);
  }

  public static void main(String[] arguments) throws java.io.IOException {
    try (Lathe lathe = new Lathe()) {
      convolution(lathe);
      attention(lathe);
      ownKernel(lathe);
      try {
        lathe.plan("causal_conv1d", Map.of(), Map.of("activation", "relu"));
      } catch (IllegalArgumentException refused) {
        System.out.println("refused: " + refused.getMessage());
      }
    }
  }
}
