//! The machine on which the figures were measured.

use std::fs;
use std::thread;

use nix::sys::utsname::uname;
use serde::Serialize;

/// Facts about the machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Kernel name and release.
    pub(crate) kernel: String,
    /// Architecture.
    pub(crate) architecture: String,
    /// Model of the processor.
    pub(crate) processor: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Whether it is a virtual machine, as far as the processor tells.
    pub(crate) virtual_machine: bool,
    /// Load average of the last minute, before the run.
    pub(crate) load: String,
    /// Version of this package.
    pub(crate) version: &'static str,
}

impl Machine {
    /// Reads these facts.
    pub(crate) fn read() -> Self {
        let uname = uname().ok();
        let text = |field: Option<&std::ffi::OsStr>| {
            field.map_or_else(|| "unknown".to_owned(), |f| f.to_string_lossy().into_owned())
        };
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            kernel: format!("Linux {}", text(uname.as_ref().map(|u| u.release()))),
            architecture: text(uname.as_ref().map(|u| u.machine())),
            processor: field(&cpuinfo, "model name").unwrap_or("unknown processor").to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// Returns them in one line for people.
    pub(crate) fn line(&self) -> String {
        let kind = if self.virtual_machine { "virtual " } else { "" };
        let cores = if self.cores == 1 { "core" } else { "cores" };
        format!(
            "{}, {} {kind}{cores} of {}, {}",
            self.kernel, self.cores, self.processor, self.architecture
        )
    }
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}
