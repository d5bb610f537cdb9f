// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
//! A causal convolution, causal attention and a kernel of one's own, each held against its formula.

use lathe::{Context, Error, Kernel, Problem, Result};

fn values(count: i64, step: i64) -> Vec<f32> {
    (0..count).map(|i| (i * step % 101) as f32 / 50.0 - 1.0).collect()
}

/// Runs a problem once with these tensors, of which the last one is the result.
fn run(context: &Context, p: &Problem, tensors: &[(&str, &[i64], &[f32])]) -> Result<Vec<f32>> {
    let uploads = tensors.iter().map(|(_, _, values)| context.upload(values));
    let buffers = uploads.collect::<Result<Vec<_>>>()?;
    let views =
        tensors.iter().zip(&buffers).map(|((name, shape, _), b)| Ok((*name, b.shaped(shape)?)));
    context.plan(p)?.run(&views.collect::<Result<Vec<_>>>()?)?;
    buffers[buffers.len() - 1].download()
}

fn check(what: &str, found: &[f32], expected: impl Fn(usize) -> f64) -> Result<()> {
    let errors = found.iter().enumerate().map(|(i, &f)| (expected(i) - f as f64).abs());
    let error = errors.fold(0.0, f64::max);
    println!("{what}: largest error {error:.1e}");
    if error < 1e-5 {
        Ok(())
    } else {
        Err(Error(format!("{what} is wrong")))
    }
}

fn convolution(context: &Context) -> Result<()> {
    let (t, d, w) = (100, 64, 4);
    let problem = Problem::new("causal_conv1d")?
        .tensor::<f32>("x", &[-1, -1, d])?
        .tensor::<f32>("weight", &[d, w])?
        .tensor::<f32>("y", &[-1, -1, d])?
        .set("activation", "silu")?;
    let (x, weight, rows) = (values(t * d, 37), values(d * w, 53), [1, t, d]);
    let zeros = vec![0.0; x.len()];
    let tensors: [(_, &[i64], _); 3] =
        [("x", &rows, &x[..]), ("weight", &[d, w], &weight), ("y", &rows, &zeros)];
    let (y, d, w) = (run(context, &problem, &tensors)?, d as usize, w as usize);
    check("causal_conv1d", &y, |i| {
        let taps = (0..w).filter(|tap| i / d + tap + 1 >= w);
        let product = |tap| weight[i % d * w + tap] as f64 * x[i + (tap + 1) * d - w * d] as f64;
        let z: f64 = taps.map(product).sum();
        z / (1.0 + (-z).exp())
    })
}

fn attention(context: &Context) -> Result<()> {
    let (tokens, d) = (48, 32);
    let mut problem = Problem::new("flash_attention")?.set("causal", "1")?;
    for name in ["q", "k", "v", "out"] {
        problem = problem.tensor::<f32>(name, &[-1, -1, 1, d])?;
    }
    let problem = problem.tensor::<f32>("lse", &[-1, 1, -1])?;
    let [q, k, v] = [37, 29, 53].map(|step| values(tokens * d, step));
    let (zeros, shape) = (vec![0.0; q.len()], [1, tokens, 1, d]);
    let lse: (_, &[i64], _) = ("lse", &[1, 1, tokens], &zeros[..tokens as usize]);
    let tensors =
        [lse, ("q", &shape, &q), ("k", &shape, &k), ("v", &shape, &v), ("out", &shape, &zeros)];
    let (out, d) = (run(context, &problem, &tensors)?, d as usize);
    check("flash_attention", &out, |i| {
        let weight = |j: usize| {
            let products = (0..d).map(|c| q[i / d * d + c] as f64 * k[j * d + c] as f64);
            (products.sum::<f64>() / (d as f64).sqrt()).exp()
        };
        let sum: f64 = (0..=i / d).map(weight).sum();
        (0..=i / d).map(|j| weight(j) * v[j * d + i % d] as f64).sum::<f64>() / sum
    })
}

fn own_kernel(context: &Context) -> Result<()> {
    let file = "../../own_kernels/add.cuh";
    let words = std::fs::read_to_string(file).map_err(|error| Error(error.to_string()))?;
    let kernel = Kernel::parse(&words, file)?;
    let mut problem = Problem::new(&kernel.name())?;
    for name in ["x", "y", "z"] {
        problem = problem.tensor::<f32>(name, &[-1])?;
    }
    let (x, y, zeros, n) = (values(1000, 37), values(1000, 53), vec![0.0; 1000], [1000]);
    let tensors: [(_, &[i64], _); 3] = [("x", &n, &x[..]), ("y", &n, &y), ("z", &n, &zeros)];
    let z = run(context, &problem, &tensors)?;
    check("own_kernel", &z, |i| x[i] as f64 + y[i] as f64)
}

fn main() -> Result<()> {
    let context = Context::new()?;
    convolution(&context)?;
    attention(&context)?;
    own_kernel(&context)?;
    let refused = Problem::new("causal_conv1d")?.set("activation", "relu");
    println!("refused: {}", refused.err().expect("relu is no activation").0);
    Ok(())
}
