//! Has the linker lay the functions that run side by side, where it can: `profile/functions` is the list,
//! `profile/record` writes it. What never runs is not read into memory then.
//!
//! A linker that can't (GNU ld), another target or a debug build does without.
//!
//! And refuses a static build for glibc without the flag that it needs: random numbers would be looked for
//! by name in a library that is not there, then in `/dev`, which may be empty, and each request would fail.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LIST: &str = "profile/functions";

/// What a static build is made with.
const STATIC: &str =
    r#"RUSTFLAGS='-C target-feature=+crt-static --cfg getrandom_backend="linux_getrandom"'"#;

fn main() {
    println!("cargo::rerun-if-changed={LIST}");
    // What `profile/rustc` hands to the compiler, where it is: a package has it not, and what is missing would
    // have cargo build each time. Of the dependencies cargo can't be told.
    for file in ["profile/counts", "profile/compiler"] {
        if Path::new(file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    println!("cargo::rerun-if-env-changed=RUSTC_WRAPPER");
    println!("cargo::rerun-if-env-changed=KVGAUGE_PROFILE_INTO");
    let variable = |name| env::var(name).unwrap_or_default();
    let is_static = variable("CARGO_CFG_TARGET_FEATURE")
        .split(',')
        .any(|feature| feature == "crt-static");
    if is_static
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && variable("CARGO_CFG_GETRANDOM_BACKEND").is_empty()
    {
        println!("cargo::error=a static build needs one more flag, {STATIC}");
    }
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let words = [
        format!("-Wl,--symbol-ordering-file={}", root.join(LIST).display()),
        // Another compiler's functions have other names.
        "-Wl,--no-warn-symbol-ordering".to_owned(),
    ];
    if variable("PROFILE") == "release"
        && variable("TARGET") == "x86_64-unknown-linux-gnu"
        && links(&words, Path::new(&variable("OUT_DIR")))
    {
        for word in words {
            println!("cargo::rustc-link-arg-bin=kvgauge={word}");
        }
    }
}

/// Whether a program can be linked with these words, by the compiler and flags of this build.
fn links(words: &[String], scratch: &Path) -> bool {
    let source = scratch.join("empty.rs");
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg(source).arg("-o").arg(scratch.join("empty"));
    rustc.arg("--target=x86_64-unknown-linux-gnu");
    if let Ok(flags) = env::var("CARGO_ENCODED_RUSTFLAGS") {
        rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut word = std::ffi::OsString::from("-Clinker=");
        word.push(linker);
        rustc.arg(word);
    }
    rustc.args(words.iter().map(|word| format!("-Clink-arg={word}")));
    rustc
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
