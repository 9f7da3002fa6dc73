//! Plays scripts by hand and shows what happened:
//!
//! `cargo run -p uncork-script --example play -- [--kernel] crates/script/scripts/keepalive.tcp`
//!
//! On the kernel that needs root.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use uncork_script::{Kernel, Ours, Script, Side, play};

fn main() -> Result<ExitCode> {
    let (switches, files): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    let on_kernel = match switches.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--kernel"] => true,
        _ => bail!("usage: play [--kernel] SCRIPT..."),
    };
    let mut failed = false;
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
        let script = Script::parse(&text).with_context(|| file.clone())?;
        let side = if on_kernel { Side::Kernel } else { Side::Ours };
        if let Some((only, reason)) = script.only.as_ref().filter(|(only, _)| *only != side) {
            println!("{file}: only for {only:?}: {reason}");
            continue;
        }
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let result = if on_kernel {
            Kernel::play(&name, &script)?
        } else {
            play(&script, &mut Ours::new(&script.setup)?)
        };
        match result {
            Ok(trace) => println!("{file}: holds\n{trace}"),
            Err(failure) => {
                println!("{file}: {failure}");
                failed = true;
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}
