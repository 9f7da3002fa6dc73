//! Processors on which a program with a stack on its own threads may run, or instances and their programs, and whether
//! that costs speed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Numbers of processors.
type Processors = BTreeSet<usize>;

/// Returns what slows down this process, which becomes the program, on the processors where it may run: a sentence each.
pub(crate) fn warnings(devices: &[String]) -> Vec<String> {
    Machine::at(Path::new("/sys")).warnings(Who::Program, &own(), devices)
}

/// Returns what slows down that many instances: on these processors, by their numbers, or wherever this process, which
/// starts them, may run.
pub(crate) fn of_instances(
    count: u32,
    cpus: &BTreeMap<u32, usize>,
    devices: &[String],
) -> Vec<String> {
    Machine::at(Path::new("/sys")).instances(count, &own(), cpus, devices)
}

/// Returns what slows down this process, which becomes a program of one of these instances, where it may run; each
/// instance has its processor. `wanted` is the instance's number, if known.
pub(crate) fn beside_instances(cpus: &BTreeMap<u32, usize>, wanted: Option<u32>) -> Vec<String> {
    Machine::at(Path::new("/sys")).beside(&own(), cpus, wanted)
}

/// What runs on the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A program with a stack of its own.
    Program,
    /// All instances.
    Instances,
    /// One instance, with a processor of its own.
    Instance(u32),
}

impl Who {
    fn subject(self) -> String {
        match self {
            Self::Program => "the program".to_owned(),
            Self::Instances => "the instances of the stack".to_owned(),
            Self::Instance(number) => format!("instance {number} of the stack"),
        }
    }

    /// Returns how to move it elsewhere.
    fn remedy(self) -> &'static str {
        match self {
            Self::Program => "put it there with taskset(1)",
            Self::Instances => "put them there with --cpus",
            Self::Instance(_) => "put it there with --cpus",
        }
    }
}

/// Returns the processors on which this process may run.
fn own() -> Processors {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|at| set.is_set(*at).unwrap_or(false)).collect()
}

/// The machine as the kernel describes it (sysfs).
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

    fn warnings(&self, who: Who, own: &Processors, devices: &[String]) -> Vec<String> {
        let far = devices.iter().filter_map(|device| self.is_far(who, own, device));
        far.chain(self.shares_a_core(who, own)).collect()
    }

    fn instances(
        &self,
        count: u32,
        own: &Processors,
        cpus: &BTreeMap<u32, usize>,
        devices: &[String],
    ) -> Vec<String> {
        if cpus.is_empty() {
            let far = devices.iter().filter_map(|device| self.is_far(Who::Instances, own, device));
            let core = || self.shares_a_core(Who::Instances, own);
            return far.chain((count > 1).then(core).flatten()).collect();
        }
        let each = cpus.iter().flat_map(|(number, cpu)| {
            let (who, own) = (Who::Instance(*number), Processors::from([*cpu]));
            devices.iter().filter_map(move |device| self.is_far(who, &own, device))
        });
        each.chain(self.share_cores(cpus)).collect()
    }

    /// Says that a device's memory is on another node than the processors.
    fn is_far(&self, who: Who, own: &Processors, device: &str) -> Option<String> {
        // -1: no node, as for virtual devices and on machines with a single one.
        let node: u32 = self.read(&format!("class/net/{device}/device/numa_node"))?.parse().ok()?;
        let near = self.list(&format!("devices/system/node/node{node}/cpulist"))?;
        (!near.is_empty() && near.is_disjoint(own)).then(|| {
            format!(
                "{device} is on NUMA node {node} (processors {}), and {} may run on {} only: every frame crosses \
                 between nodes; {}",
                show(&near),
                who.subject(),
                show(own),
                who.remedy()
            )
        })
    }

    /// Says that the processors of the program were restricted, and that its instance is on the same core, or on another node.
    fn beside(
        &self,
        own: &Processors,
        cpus: &BTreeMap<u32, usize>,
        wanted: Option<u32>,
    ) -> Vec<String> {
        let its = cpus.iter().filter(|(number, _)| wanted.is_none_or(|wanted| wanted == **number));
        its.filter_map(|(number, cpu)| {
            self.is_beside(own, *number, *cpu).or_else(|| self.is_beyond(own, *number, *cpu))
        })
        .collect()
    }

    /// Says that the program needs the core that the instance runs on.
    fn is_beside(&self, own: &Processors, number: u32, cpu: usize) -> Option<String> {
        let shown = show(own);
        let what = if own.len() == 1 && own.contains(&cpu) {
            format!(
                "processor {shown} only, and that is the processor of instance {number} of the stack"
            )
        } else if own.is_empty() || !own.is_subset(&self.core(cpu)) {
            return None;
        } else if own.len() == 1 {
            format!(
                "processor {shown} only, and that is a thread of the same core as processor {cpu}, instance {number}'s"
            )
        } else {
            format!(
                "processors {shown} only, and those are threads of the same core as processor {cpu}, instance \
                 {number}'s"
            )
        };
        // Where there is only one core, it was not chosen.
        (own.len() == 1 || self.all().as_ref() != Some(own)).then(|| {
            format!(
                "the program may run on {what}: they wait for each other; put it elsewhere with taskset(1)"
            )
        })
    }

    /// Says that the instance is on another node than all processors of the program.
    fn is_beyond(&self, own: &Processors, number: u32, cpu: usize) -> Option<String> {
        let (node, near) = self.nodes().into_iter().find(|(_, near)| near.contains(&cpu))?;
        (!own.is_empty() && near.is_disjoint(own)).then(|| {
            format!(
                "the program may run on {} only, and instance {number} of the stack is on processor {cpu}, of NUMA \
                 node {node} (processors {}): what they say to each other crosses between nodes; put it there with \
                 taskset(1), or name an instance that is near with --instance",
                show(own),
                show(&near)
            )
        })
    }

    /// Says that the processors were restricted to a single core.
    fn shares_a_core(&self, who: Who, own: &Processors) -> Option<String> {
        let first = own.first()?;
        (own.len() > 1 && own.is_subset(&self.core(*first)) && self.all()? != *own).then(|| {
            let whose = if who == Who::Program { "its workers" } else { "they" };
            format!(
                "the processors that {} may run on ({}) are threads of one core: {whose} share what that can do",
                who.subject(),
                show(own)
            )
        })
    }

    /// Says that instances share a core although there are others.
    fn share_cores(&self, cpus: &BTreeMap<u32, usize>) -> Vec<String> {
        let mut by_core: BTreeMap<Processors, Vec<(u32, usize)>> = BTreeMap::new();
        for (number, cpu) in cpus {
            let core = self.core(*cpu);
            if Some(&core) != self.all().as_ref() {
                by_core.entry(core).or_default().push((*number, *cpu));
            }
        }
        let shared = by_core.into_iter().filter(|(core, its)| core.len() > 1 && its.len() > 1);
        let said = shared.map(|(_, its)| {
            let list = |numbers: Vec<usize>| show(&numbers.into_iter().collect());
            format!(
                "instances {} of the stack are on processors {}, which are threads of one core: they share what that \
                 can do; put them on others with --cpus",
                list(its.iter().map(|(number, _)| *number as usize).collect()),
                list(its.iter().map(|(_, cpu)| *cpu).collect())
            )
        });
        said.collect()
    }

    /// Returns the threads of a processor's core; empty if they are not known.
    fn core(&self, cpu: usize) -> Processors {
        let path = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        self.list(&path).unwrap_or_default()
    }

    fn all(&self) -> Option<Processors> {
        self.list("devices/system/cpu/online")
    }

    /// Returns the processors of each NUMA node, by its number.
    fn nodes(&self) -> BTreeMap<u32, Processors> {
        let entries = fs::read_dir(self.root.join("devices/system/node")).into_iter().flatten();
        let numbers = entries.flatten().filter_map(|entry| {
            entry.file_name().to_str()?.strip_prefix("node")?.parse::<u32>().ok()
        });
        let node =
            |node| Some((node, self.list(&format!("devices/system/node/node{node}/cpulist"))?));
        numbers.filter_map(node).collect()
    }
}

/// Parses processors as the kernel lists them: `0-3,8`.
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

    /// Returns a machine of two nodes of four threads each, two a core (0 and 4, 1 and 5 …), and a device on the second.
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
        machine.warnings(Who::Program, &parse(own).unwrap(), &[device.to_owned()])
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
        // All processors, near ones, a single one, a device of no node, and one of which nothing is known.
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
        let both = said("2,6", Some(0));
        assert_eq!(both.len(), 1, "{both:?}");
        assert!(both[0].contains(
            "processors 2,6 only, and those are threads of the same core as processor 2"
        ));
        // The processor of another instance, and programs that may run elsewhere.
        for (own, wanted) in [("2", Some(1)), ("2-3", None), ("0-7", None), ("1,7", None)] {
            assert_eq!(said(own, wanted), Vec::<String>::new(), "{own} {wanted:?}");
        }
        assert_eq!(machine.beside(&parse("2").unwrap(), &BTreeMap::new(), None), [""; 0]);
    }

    #[test]
    fn a_program_on_another_node_than_its_instance_is_told() {
        let (_root, machine) = machine();
        let cpus = BTreeMap::from([(0, 1), (1, 3)]);
        let said = |own: &str, wanted| machine.beside(&parse(own).unwrap(), &cpus, wanted);
        let far = said("0,4", Some(1));
        assert_eq!(far.len(), 1, "{far:?}");
        assert!(
            far[0].starts_with(
                "the program may run on 0,4 only, and instance 1 of the stack is on processor 3, of NUMA node 1 \
                 (processors 2-3,6-7): "
            ),
            "{far:?}"
        );
        // Whichever instance it gets, one is far.
        let either = said("6", None);
        assert_eq!(either.len(), 1, "{either:?}");
        assert!(either[0].contains("instance 0 of the stack is on processor 1, of NUMA node 0"));
        for (own, wanted) in [("0,4", Some(0)), ("2,6", Some(1)), ("0-7", None), ("0,3", None)] {
            assert_eq!(said(own, wanted), Vec::<String>::new(), "{own} {wanted:?}");
        }
    }

    #[test]
    fn instances_that_are_far_from_a_device_or_share_a_core_are_told() {
        let (_root, machine) = machine();
        let at = |own: &str, cpus: &[usize], count, device: &str| {
            let cpus = (0..).zip(cpus.iter().copied()).collect();
            machine.instances(count, &parse(own).unwrap(), &cpus, &[device.to_owned()])
        };
        let far = at("0-7", &[2, 1], 2, "eth0");
        assert_eq!(far.len(), 1, "{far:?}");
        assert!(
            far[0].starts_with(
                "eth0 is on NUMA node 1 (processors 2-3,6-7), and instance 1 of the stack may run on 1 only: "
            ) && far[0].ends_with("put it there with --cpus"),
            "{far:?}"
        );
        let shared = at("0-7", &[2, 3, 6], 3, "eth0");
        assert_eq!(shared.len(), 1, "{shared:?}");
        assert!(
            shared[0].starts_with(
                "instances 0,2 of the stack are on processors 2,6, which are threads of one core: "
            ),
            "{shared:?}"
        );
        // All processors on which this process may run.
        let all = at("0,4", &[], 2, "eth0");
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("and the instances of the stack may run on 0,4 only"), "{all:?}");
        assert!(all[1].contains("(0,4) are threads of one core: they share"), "{all:?}");
        for (own, cpus, count, device) in [
            ("0-7", &[2, 3][..], 2, "eth0"),
            ("0-7", &[0, 1][..], 2, "eth1"),
            ("2,6", &[][..], 1, "eth0"),
            ("0-7", &[][..], 4, "eth0"),
            ("0-7", &[0][..], 1, "veth"),
        ] {
            assert_eq!(at(own, cpus, count, device), [""; 0], "{own} {cpus:?} {device}");
        }
    }

    #[test]
    fn a_machine_of_one_core_is_no_choice() {
        let (root, machine) = machine();
        fs::write(root.path().join("devices/system/cpu/online"), "0,4\n").unwrap();
        let own = parse("0,4").unwrap();
        assert_eq!(machine.shares_a_core(Who::Program, &own), None);
        let cpus = BTreeMap::from([(0, 0), (1, 4)]);
        assert_eq!(machine.share_cores(&cpus), [""; 0]);
        assert_eq!(machine.beside(&own, &cpus, None), [""; 0]);
        assert_eq!(parse("0-x"), None);
        assert_eq!(show(&parse("0-3,8,10-11").unwrap()), "0-3,8,10-11");
    }
}
