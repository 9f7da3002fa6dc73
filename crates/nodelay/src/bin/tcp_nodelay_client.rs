//! `tcp_nodelay_client`: everything is in the library part of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    uncork_nodelay::client::main()
}
