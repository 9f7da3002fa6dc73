//! `tcp_nodelay_server`: everything is in the library part of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    uncork_nodelay::server::main()
}
