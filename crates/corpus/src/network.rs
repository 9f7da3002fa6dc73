//! The two ends and the link between them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::running::Running;
use crate::scenario::{Kind, Wire};
use uncork_netns::{Namespace, run};

/// Name of the device at both ends of every link but the loopback.
pub(crate) const DEVICE: &str = "eth0";

/// Two namespaces, or one, and the link between them. Fields are dropped in this order: first the
/// link, then its ends.
pub(crate) struct Network {
    _link: Option<Running>,
    pub(crate) client: Namespace,
    server: Option<Namespace>,
}

impl Network {
    pub(crate) fn new(wire: &Wire, own: &Path) -> Result<Self> {
        let client = Namespace::new("c")?;
        if wire.kind == Kind::Loopback {
            return Ok(Self { _link: None, client, server: None });
        }
        let server = Namespace::new("s")?;
        let mut running = None;
        match wire.kind {
            Kind::Veth => client.ip(&format!(
                "link add {DEVICE} type veth peer name {DEVICE} netns {}",
                server.name()
            ))?,
            _ => running = Some(start_link(wire, own, [&client, &server])?),
        }
        let addresses = wire.addresses();
        for (namespace, own) in [(&client, addresses[0]), (&server, addresses[1])] {
            // Less chatter: no router solicitations on a link with two ends.
            namespace.set("ipv6/conf/all/accept_ra", 0)?;
            namespace.set("ipv6/conf/default/router_solicitations", 0)?;
            set_up(namespace, wire, own)?;
        }
        Ok(Self { _link: running, client, server: Some(server) })
    }

    pub(crate) fn server(&self) -> &Namespace {
        self.server.as_ref().unwrap_or(&self.client)
    }
}

fn set_up(namespace: &Namespace, wire: &Wire, own: &str) -> Result<()> {
    let (prefix, nodad) = if wire.ipv6 { ("64", " nodad") } else { ("24", "") };
    namespace.ip(&format!("link set {DEVICE} up"))?;
    namespace.ip(&format!("address add {own}/{prefix} dev {DEVICE}{nodad}"))?;
    // CUBIC, whatever the host's default is: it cannot be set for a namespace, but for a route.
    let network = if wire.ipv6 { "fd77::/64" } else { "10.77.0.0/24" };
    let client = own == wire.addresses()[0];
    let mut metrics = "congctl cubic".to_owned();
    match wire.initial_window {
        Some(segments) if client => metrics += &format!(" initcwnd {segments}"),
        _ => {}
    }
    if wire.quick_acks && !client {
        metrics += " quickack 1";
    }
    let proto = if wire.ipv6 { "" } else { &format!(" proto kernel scope link src {own}") };
    namespace.ip(&format!("route replace {network} dev {DEVICE}{proto} {metrics}"))?;
    if !wire.offload {
        run(namespace
            .command("ethtool")
            .args(["-K", DEVICE, "tso", "off", "gso", "off", "gro", "off"]))?;
    }
    Ok(())
}

fn start_link(wire: &Wire, own: &Path, ends: [&Namespace; 2]) -> Result<Running> {
    let mut command = Command::new(own);
    command.args(["link", "--device"]).arg(DEVICE);
    for end in ends {
        command.arg("--namespace").arg(end.name());
    }
    if wire.kind == Kind::Tun {
        command.arg("--bare-ip");
    }
    if wire.offload {
        command.arg("--offload");
    }
    for path in &wire.paths {
        command.arg("--path").arg(serde_json::to_string(path)?);
    }
    let mut running = Running::start(command, "link")?;
    let mut line = String::new();
    if let Some(stdout) = running.child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.trim() != "ready" {
        bail!("the link did not start");
    }
    Ok(running)
}
