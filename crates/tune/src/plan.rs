//! From a request to the changes that it needs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use uncork_bpf::tune::{Cure, Scope};

use crate::Error;
use crate::bpffs;
use crate::change::{Change, Reach, Sockets, route};
use crate::netns::{Handle, NetNs};
use crate::scope::Prefix;

/// A request: the cures, and for which connections. All the given criteria of the scope must hold.
#[derive(Debug, Default)]
pub struct Request {
    /// Options to be set on sockets.
    pub cures: Vec<Cure>,
    /// Whether the other ends' data is to be acknowledged at once, by route.
    pub quickack: bool,
    /// A process, including its descendants.
    pub pid: Option<u32>,
    /// A port at either end.
    pub port: Option<u16>,
    /// Addresses of the peers.
    pub peer: Option<Prefix>,
    /// A cgroup of the v2 hierarchy: its directory, or its name as in /proc/PID/cgroup.
    pub cgroup: Option<PathBuf>,
    /// A network namespace.
    pub netns: Option<Handle>,
    /// Whether connections established from now on are included.
    pub new: bool,
    /// Whether existing connections are included.
    pub live: bool,
}

/// The changes to be made.
#[derive(Debug, Default)]
pub struct Plan {
    /// What was asked for, in words.
    pub title: String,
    /// Changes that this process makes itself.
    pub changes: Vec<Change>,
    /// Changes that eBPF programs make.
    pub sockets: Option<SocketPlan>,
    /// What was requested and will not be done, each with its reason.
    pub left: Vec<String>,
    /// Remarks on the plan.
    pub notes: Vec<String>,
}

/// The task of the eBPF programs.
#[derive(Debug)]
pub struct SocketPlan {
    pub(crate) cures: Vec<Cure>,
    pub(crate) scope: Scope,
    pub(crate) new: bool,
    /// The only network namespace that is meant, if there is one.
    pub(crate) netns: Option<NetNs>,
    /// The namespaces whose existing connections are included.
    pub(crate) live: Vec<Handle>,
    pub(crate) words: String,
}

impl SocketPlan {
    pub(crate) fn change(&self, bpffs: &Path) -> Change {
        let cures = self.cures.iter().map(Cure::to_string).collect();
        let (scope, words) = (&self.scope, self.words.clone());
        let reach = Reach {
            netns: self.netns.clone(),
            cgroup: scope.cgroup.clone(),
            pid: scope.pid,
            new: self.new,
        };
        let bpffs = bpffs.to_owned();
        Change::Sockets(Sockets { bpffs, cures, scope: words, reach: Some(reach) })
    }

    /// Returns what has to be there for it, and is created.
    fn prepared(&self, at: &Path) -> Result<Vec<String>, Error> {
        let mut made = Vec::new();
        bpffs::may_be_mounted(at)?;
        if !bpffs::is_mounted(at) {
            made.push(format!("bpffs mounted at {}", at.display()));
        }
        made.push(format!("eBPF programs kept below {}", at.join("uncork").display()));
        if self.new {
            let cgroup = match &self.scope.cgroup {
                Some((path, _)) => path.clone(),
                None => uncork_bpf::tune::cgroup_root()?,
            };
            made.push(format!(
                "eBPF programs attached to cgroup {}, to meet new connections",
                cgroup.display()
            ));
        }
        Ok(made)
    }
}

impl Plan {
    /// Plans the changes for a request.
    ///
    /// # Errors
    /// If something that is named is not there.
    pub fn of(request: Request) -> Result<Self, Error> {
        let mut plan = Self { title: request.words(), ..Self::default() };
        if request.quickack {
            let own;
            let handle = if let Some(handle) = &request.netns {
                handle
            } else {
                own = Handle::own()?;
                plan.title += &own.id.words();
                &own
            };
            let routes = route::Plan::of(handle, request.peer)?;
            plan.changes.extend(routes.routes.into_iter().map(Change::Route));
            plan.left.extend(routes.left);
        }
        if !request.cures.is_empty() {
            plan.sockets = Some(request.sockets()?);
        }
        Ok(plan)
    }

    /// Returns each change, in the words of the list, and what is created for it.
    ///
    /// # Errors
    /// If something is missing that is not to be created.
    pub fn prepared(&self, bpffs: &Path) -> Result<Vec<String>, Error> {
        let mut all: Vec<String> = self.changes.iter().map(Change::words).collect();
        if let Some(sockets) = &self.sockets {
            all.push(sockets.change(bpffs).words());
            all.extend(sockets.prepared(bpffs)?);
        }
        Ok(all)
    }
}

impl Request {
    fn sockets(self) -> Result<SocketPlan, Error> {
        let mut words = self.scope_words();
        let cgroup = self.cgroup.as_deref().map(cgroup).transpose()?;
        // A port or an address alone means that of one network, and not of each on the machine.
        let by_network = self.pid.is_none() && self.cgroup.is_none();
        let only = match self.netns {
            Some(handle) => Some(handle),
            None if by_network && (self.port.is_some() || self.peer.is_some()) => {
                let own = Handle::own()?;
                words += &own.id.words();
                Some(own)
            }
            None => None,
        };
        let scope = Scope {
            pid: self.pid,
            port: self.port,
            peer: self.peer.map(|peer| (peer.address, peer.bits)),
            netns_cookie: only.as_ref().map(|handle| handle.id.cookie),
            cgroup,
            device: None,
            looser_only: false,
        };
        let netns = only.as_ref().map(|handle| handle.id.clone());
        let live = match (self.live, only) {
            (false, _) => Vec::new(),
            (true, Some(handle)) => vec![handle],
            (true, None) => Handle::all(),
        };
        Ok(SocketPlan { cures: self.cures, scope, new: self.new, netns, live, words })
    }

    fn words(&self) -> String {
        let mut cures: Vec<String> = self.cures.iter().map(Cure::to_string).collect();
        // Without a peer, only the routes of one network namespace are meant.
        let all_routes = self.quickack && self.netns.is_none() && self.peer.is_none();
        if self.quickack && !all_routes {
            cures.push("quick ACKs".to_owned());
        }
        let mut words = String::new();
        if !cures.is_empty() {
            words = format!("{} for {}", cures.join(", "), self.scope_words());
        }
        if all_routes {
            words += if words.is_empty() { "" } else { "; " };
            words += "quick ACKs on the routes of this network namespace";
        }
        words
    }

    fn scope_words(&self) -> String {
        let which = match (self.new, self.live) {
            (true, false) => "new connections",
            (false, true) => "present connections",
            _ => "connections",
        };
        let narrowed = self.pid.is_some()
            || self.cgroup.is_some()
            || self.port.is_some()
            || self.peer.is_some()
            || self.netns.is_some();
        if !narrowed {
            return format!("all {which} of this machine");
        }
        let mut words = which.to_owned();
        if let Some(pid) = self.pid {
            words += &format!(" of process {pid} and its descendants");
        }
        if let Some(cgroup) = &self.cgroup {
            words += &format!(" of cgroup {}", cgroup.display());
        }
        if let Some(port) = self.port {
            words += &format!(" with port {port}");
        }
        if let Some(peer) = self.peer {
            words += &format!(" to {peer}");
        }
        match self.netns.as_ref().map(|handle| handle.id.words()) {
            Some(netns) if !netns.is_empty() => words += &netns,
            Some(_) => words += " in this network namespace",
            None => {}
        }
        words
    }
}

/// Returns the directory of a cgroup and its number, which is the directory's inode number.
fn cgroup(named: &Path) -> Result<(PathBuf, u64), Error> {
    let is_one = |path: &Path| {
        path.is_dir() && statfs(path).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC)
    };
    let below_root = || {
        let root = uncork_bpf::tune::cgroup_root().ok()?;
        Some(root.join(named.strip_prefix("/").unwrap_or(named)))
    };
    let path = if is_one(named) { Some(named.to_owned()) } else { below_root() };
    let path = path.filter(|path| is_one(path)).ok_or_else(|| {
        Error::Absent(format!(
            "{}: there is no such cgroup in the v2 hierarchy (/proc/PID/cgroup names that of a \
             process, after 0::)",
            named.display()
        ))
    })?;
    let number = fs::metadata(&path).map(|found| found.ino());
    let number = number.map_err(|error| Error::Absent(format!("{}: {error}", path.display())))?;
    Ok((path, number))
}
