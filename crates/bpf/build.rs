//! Compiles the eBPF programs with clang, against libbpf's own headers and none of the
//! machine's: the kernel's structures are resolved by name when the programs are loaded (CO-RE).

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// The sources that include the others, each of which makes one object.
const SOURCES: [&str; 4] = ["doctor", "tune", "owned", "redirect"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let headers = env::var_os("DEP_BPF_INCLUDE").ok_or("libbpf-sys tells where its headers are")?;
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    // bpf_tracing.h takes a function's arguments by the machine's calling convention.
    let arch = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "-D__TARGET_ARCH_x86",
        "aarch64" => "-D__TARGET_ARCH_arm64",
        "riscv64" => "-D__TARGET_ARCH_riscv",
        other => return Err(format!("there are no eBPF programs for {other}").into()),
    };
    for name in SOURCES {
        let source = format!("src/bpf/{name}.bpf.c");
        let mut command = Command::new(&clang);
        command
            .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", arch])
            .args(["-Wno-missing-declarations", "-I"])
            .arg(&headers)
            .args(["-c", &source, "-o"])
            .arg(out.join(format!("{name}.bpf.o")));
        let status = command.status().map_err(|error| {
            format!("{} cannot be run (Debian: apt-get install clang): {error}", clang.display())
        })?;
        if !status.success() {
            return Err(format!("clang could not compile {source}").into());
        }
    }
    Ok(())
}
