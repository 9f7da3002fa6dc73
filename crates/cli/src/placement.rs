//! Where a program with a stack on its own threads may run, and whether that costs it speed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Numbers of processors.
type Processors = BTreeSet<usize>;

/// What costs speed of where this process, which becomes the program, may run: a sentence each.
pub(crate) fn warnings(devices: &[String]) -> Vec<String> {
    Machine::at(Path::new("/sys")).warnings(&own(), devices)
}

/// What costs speed of where this process, which becomes a program of one of these instances, may run; each has its
/// processor. `wanted` is its number, if that is known.
pub(crate) fn beside_instances(cpus: &BTreeMap<u32, usize>, wanted: Option<u32>) -> Vec<String> {
    Machine::at(Path::new("/sys")).beside(&own(), cpus, wanted)
}

/// The processors that this process may run on.
fn own() -> Processors {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|at| set.is_set(*at).unwrap_or(false)).collect()
}

/// What the kernel tells of the machine (sysfs).
struct Machine {
    root: PathBuf,
}

impl Machine {
    fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn read(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.root.join(path)).ok()?.trim().to_owned())
    }

    fn list(&self, path: &str) -> Option<Processors> {
        parse(&self.read(path)?)
    }

    fn warnings(&self, own: &Processors, devices: &[String]) -> Vec<String> {
        let far = devices.iter().filter_map(|device| self.is_far(own, device));
        far.chain(self.shares_a_core(own)).collect()
    }

    /// A device whose memory is beyond the processors' own.
    fn is_far(&self, own: &Processors, device: &str) -> Option<String> {
        // -1: of none, as virtual devices and machines with one.
        let node: u32 = self.read(&format!("class/net/{device}/device/numa_node"))?.parse().ok()?;
        let near = self.list(&format!("devices/system/node/node{node}/cpulist"))?;
        (!near.is_empty() && near.is_disjoint(own)).then(|| {
            format!(
                "{device} is on NUMA node {node} (processors {}), and the program may run on {} only: every frame \
                 crosses between nodes; put it there with taskset(1)",
                show(&near),
                show(own)
            )
        })
    }

    /// Somebody has chosen one processor, and an instance needs it, too, or the core that it is of.
    fn beside(
        &self,
        own: &Processors,
        cpus: &BTreeMap<u32, usize>,
        wanted: Option<u32>,
    ) -> Vec<String> {
        let Some(at) = own.first().filter(|_| own.len() == 1) else { return Vec::new() };
        let path = format!("devices/system/cpu/cpu{at}/topology/thread_siblings_list");
        let core = self.list(&path).unwrap_or_default();
        let its = cpus.iter().filter(|(number, _)| wanted.is_none_or(|wanted| wanted == **number));
        let said = its.filter_map(|(number, cpu)| {
            let what = if cpu == at {
                format!("that is the processor of instance {number} of the stack")
            } else if core.contains(cpu) {
                format!("that is a thread of the same core as processor {cpu}, instance {number}'s")
            } else {
                return None;
            };
            Some(format!(
                "the program may run on processor {at} only, and {what}: they wait for each other; put it \
                 elsewhere with taskset(1)"
            ))
        });
        said.collect()
    }

    /// Somebody has chosen processors, and they are one core.
    fn shares_a_core(&self, own: &Processors) -> Option<String> {
        let first = own.first()?;
        let path = format!("devices/system/cpu/cpu{first}/topology/thread_siblings_list");
        let core = self.list(&path)?;
        let all = self.list("devices/system/cpu/online")?;
        (own.len() > 1 && own.is_subset(&core) && own != &all).then(|| {
            format!(
                "the processors that the program may run on ({}) are threads of one core: its workers share what \
                 that can do",
                show(own)
            )
        })
    }
}

/// As the kernel lists processors: `0-3,8`.
fn parse(list: &str) -> Option<Processors> {
    let mut all = Processors::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        all.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(all)
}

fn show(all: &Processors) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &at in all {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == at => *last = at,
            _ => ranges.push((at, at)),
        }
    }
    let shown = ranges.iter().map(|&(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of four threads each, two a core (0 and 4, 1 and 5 …), and a device on the second.
    fn machine() -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        put("devices/system/cpu/online", "0-7");
        put("devices/system/node/node0/cpulist", "0-1,4-5");
        put("devices/system/node/node1/cpulist", "2-3,6-7");
        for at in 0..8 {
            let core = at % 4;
            let path = format!("devices/system/cpu/cpu{at}/topology/thread_siblings_list");
            put(&path, &format!("{core},{}", core + 4));
        }
        put("class/net/eth0/device/numa_node", "1");
        put("class/net/eth1/device/numa_node", "-1");
        let machine = Machine::at(root.path());
        (root, machine)
    }

    fn said(own: &str, device: &str) -> Vec<String> {
        let (_root, machine) = machine();
        machine.warnings(&parse(own).unwrap(), &[device.to_owned()])
    }

    #[test]
    fn what_costs_speed_is_said_and_nothing_else() {
        let far = said("0-1", "eth0");
        assert_eq!(far.len(), 1, "{far:?}");
        assert!(far[0].contains("node 1 (processors 2-3,6-7)") && far[0].contains("on 0-1 only"));
        let shared = said("2,6", "eth0");
        assert_eq!(shared.len(), 1, "{shared:?}");
        assert!(shared[0].contains("(2,6) are threads of one core"), "{shared:?}");
        assert_eq!(said("0,4", "eth0").len(), 2);
        // Everywhere, near, one processor, a device of no node, and one that nothing is known of.
        for (own, device) in
            [("0-7", "eth0"), ("2-3", "eth0"), ("2", "eth0"), ("0-1", "eth1"), ("0", "veth")]
        {
            assert_eq!(said(own, device), Vec::<String>::new(), "{own} {device}");
        }
    }

    #[test]
    fn a_program_on_the_processor_of_its_instance_is_told() {
        let (_root, machine) = machine();
        let cpus = BTreeMap::from([(0, 2), (1, 3)]);
        let said = |own: &str, wanted| machine.beside(&parse(own).unwrap(), &cpus, wanted);
        let same = said("2", Some(0));
        assert_eq!(same.len(), 1, "{same:?}");
        assert!(same[0].contains("processor 2 only, and that is the processor of instance 0"));
        let sibling = said("7", None);
        assert_eq!(sibling.len(), 1, "{sibling:?}");
        assert!(sibling[0].contains("same core as processor 3, instance 1's"), "{sibling:?}");
        // Another's, a core of nobody's, and one that may go elsewhere.
        for (own, wanted) in [("2", Some(1)), ("1", None), ("2-3", None)] {
            assert_eq!(said(own, wanted), Vec::<String>::new(), "{own} {wanted:?}");
        }
        assert_eq!(machine.beside(&parse("2").unwrap(), &BTreeMap::new(), None), [""; 0]);
    }

    #[test]
    fn a_machine_of_one_core_is_no_choice() {
        let (root, machine) = machine();
        fs::write(root.path().join("devices/system/cpu/online"), "0,4\n").unwrap();
        assert_eq!(machine.shares_a_core(&parse("0,4").unwrap()), None);
        assert_eq!(parse("0-x"), None);
        assert_eq!(show(&parse("0-3,8,10-11").unwrap()), "0-3,8,10-11");
    }
}
