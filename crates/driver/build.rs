//! With the feature `dpdk`: compiles the shim over DPDK's inline functions, and links its users against DPDK's
//! libraries. Without it there is nothing to do, and nothing is needed.

#[cfg(not(feature = "dpdk"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "dpdk")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/dpdk/shim.c");
    println!("cargo::rerun-if-changed=src/dpdk/shim.h");
    let missing = |error| {
        format!(
            "the feature `dpdk` needs DPDK 22.11 or later (Debian: apt-get install libdpdk-dev): {error}"
        )
    };
    // With --as-needed the linker keeps only the libraries of which something is used. The drivers are not among
    // them: DPDK loads those from a directory that it knows.
    pkg_config::Config::new().atleast_version("22.11").probe("libdpdk").map_err(missing)?;
    let mut build = cc::Build::new();
    for flag in flags()? {
        build.flag(&flag);
    }
    build.file("src/dpdk/shim.c").flag("-Wall").flag("-Wextra").flag("-Werror");
    build.try_compile("uncork_dpdk_shim")?;
    Ok(())
}

/// Returns the flags for compiling against DPDK, including the one for the processor that DPDK itself was compiled for:
/// the pkg-config crate passes on all but that one.
#[cfg(feature = "dpdk")]
fn flags() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=PKG_CONFIG");
    let program = std::env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let done = std::process::Command::new(program).args(["--cflags", "libdpdk"]).output()?;
    if !done.status.success() {
        return Err("pkg-config does not tell how to compile for DPDK".into());
    }
    Ok(String::from_utf8(done.stdout)?.split_whitespace().map(str::to_owned).collect())
}
