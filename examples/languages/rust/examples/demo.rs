// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
//! A causal convolution and causal attention, each held against its formula in f64.

use lathe::{Context, Device, Error, Problem, Result};

fn values(count: i64, step: i64) -> Vec<f32> {
    (0..count).map(|i| (i * step % 101) as f32 / 50.0 - 1.0).collect()
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
    let plan = context.plan(&problem)?;
    let (x, weight) = (values(t * d, 37), values(d * w, 53));
    let (on_x, on_weight) = (context.upload(&x)?, context.upload(&weight)?);
    let (y, rows, taps) = (context.zeros::<f32>(x.len())?, [1, t, d], [d, w]);
    plan.run(&[
        ("x", on_x.shaped(&rows)?),
        ("weight", on_weight.shaped(&taps)?),
        ("y", y.shaped(&rows)?),
    ])?;
    let (d, w) = (d as usize, w as usize);
    check("causal_conv1d", &y.download()?, |i| {
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
    let plan = context.plan(&problem.tensor::<f32>("lse", &[-1, 1, -1])?)?;
    let [q, k, v] = [37, 29, 53].map(|step| values(tokens * d, step));
    let (on_q, on_k, on_v) = (context.upload(&q)?, context.upload(&k)?, context.upload(&v)?);
    let (out, lse) = (context.zeros::<f32>(q.len())?, context.zeros::<f32>(tokens as usize)?);
    let shape = [1, tokens, 1, d];
    plan.run(&[
        ("q", on_q.shaped(&shape)?),
        ("k", on_k.shaped(&shape)?),
        ("v", on_v.shaped(&shape)?),
        ("out", out.shaped(&shape)?),
        ("lse", lse.shaped(&[1, 1, tokens])?),
    ])?;
    let d = d as usize;
    check("flash_attention", &out.download()?, |i| {
        let weight = |j: usize| {
            let products = (0..d).map(|c| q[i / d * d + c] as f64 * k[j * d + c] as f64);
            (products.sum::<f64>() / (d as f64).sqrt()).exp()
        };
        let sum: f64 = (0..=i / d).map(weight).sum();
        (0..=i / d).map(|j| weight(j) * v[j * d + i % d] as f64).sum::<f64>() / sum
    })
}

fn main() -> Result<()> {
    let context = Context::new(Device::Default)?;
    convolution(&context)?;
    attention(&context)?;
    let refused = Problem::new("causal_conv1d")?.set("activation", "relu");
    println!("refused: {}", refused.err().expect("relu is no activation").0);
    Ok(())
}
