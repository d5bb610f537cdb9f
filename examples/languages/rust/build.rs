// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
//! liblathe.so is below LATHE_PREFIX, or where the linker looks.

fn main() {
    println!("cargo:rerun-if-env-changed=LATHE_PREFIX");
    if let Ok(prefix) = std::env::var("LATHE_PREFIX") {
        println!("cargo:rustc-link-search=native={prefix}/lib");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{prefix}/lib");
    }
    println!("cargo:rustc-link-lib=dylib=lathe");
}
