//! The `kvgauge` binary.

fn main() -> std::process::ExitCode {
    kvgauge::run()
}
