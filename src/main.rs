//! The `kvgauge` binary.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    kvgauge::run()
}
