//! nginx under F-Stack's adapter, and the instance with its stack.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use uncork_lab::place::{DEVICE, FAR, NEAR, joined};
use uncork_netns::{Namespace, run};

use super::answer;
use super::checkout::Checkout;
use super::config::{Settings, configuration, mask};
use super::pages;
use crate::launch::{Job, Way, within};
use crate::process::{Keeper, Running};
use crate::roles::Duty;
use crate::run::Bed;
use crate::run::nginx::{Serves, prepare};
use crate::run::on_cpu::on_cpu;
use crate::toolbox::program;

/// How many huge pages it gets: buffers for frames, and messages between the program and the instance.
const PAGES: u64 = 512;
/// What the instance prints when programs may attach.
const READY: &str = "ff_create_so_memzone successful";
/// How long nginx may take until it answers.
const START: Duration = Duration::from_secs(30);
/// By then the requests under way when a client ends are done.
const REST: Duration = Duration::from_millis(100);

/// The processors of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The instance's, which is never idle.
    pub(super) instance: usize,
    /// nginx's.
    pub(super) program: usize,
}

/// Both processes, over a link of their own: every frame of the device is F-Stack's.
pub(super) struct Adapter {
    /// Dropped first: it kills them at once, and the huge pages are in use until then.
    _keeper: Keeper,
    nginx: Running,
    instance: Running,
    _near: Namespace,
    /// The clients' namespace.
    pub(super) far: Namespace,
    /// The address of nginx.
    pub(super) at: SocketAddr,
}

impl Adapter {
    /// Starts them, and checks their answers.
    pub(super) fn start(
        bed: &Bed<'_>,
        checkout: &Checkout,
        (places, delay): (Places, u32),
        port: u16,
    ) -> Result<Self> {
        let at = SocketAddr::from((NEAR, port));
        let (near, far) = link()?;
        let mut keeper = Keeper::new(bed.tools)?;
        pages::lend(PAGES, &mut keeper)?;
        let dir = bed.scratch.dir("fstack")?;
        let huge = dir.join("huge");
        fs::create_dir(&huge)?;
        let settings =
            Settings { core: places.instance, delay, device: DEVICE, address: NEAR, peer: FAR };
        let conf = dir.join("config.ini");
        fs::write(&conf, configuration(&checkout.configuration()?, settings)?)?;
        // Where the processes of DPDK find each other (otherwise below /var/run).
        let meet = ("RUNTIME_DIRECTORY", dir.as_os_str());
        // Its output is short, and in a file would only appear when a buffer is full.
        let job = Job::new(program("stdbuf")?)
            .arg("-oL")
            .arg(&checkout.instance)
            .arg("--conf")
            .arg(&conf)
            .args(["--proc-type=primary", "--proc-id=0"])
            .env(meet.0, meet.1)
            .huge_pages(huge)
            .end("SIGKILL");
        let mut command = within(&near, &job.command(bed.tools)?)?;
        command.current_dir(&dir);
        let mut instance = Running::start(command, "fstack", &dir)?;
        keeper.take(&Duty::End(i32::try_from(instance.pid())?))?;
        instance
            .wait_until_it_says(READY)
            .context("F-Stack's instance (docs/F-STACK.md says how it has to be built)")?;
        let (job, log) = prepare(bed, at, Serves::Words)?;
        let way = Way::Other { library: checkout.adapter.clone(), env: variables(places.program)? };
        let job = job.way(&way).core(places.program).beside(instance.pid()).env(meet.0, meet.1);
        let command = within(&near, &job.command(bed.tools)?)?;
        let nginx = Running::start(command, "nginx", &log)?.ended_by(Signal::SIGKILL);
        keeper.take(&Duty::End(i32::try_from(nginx.pid())?))?;
        let adapter = Self { _keeper: keeper, nginx, instance, _near: near, far, at };
        answer::wait(&adapter.far, at, START).context("nginx under F-Stack's adapter")?;
        adapter.stop()?;
        Ok(adapter)
    }

    /// Returns the processes that work for an answer: nginx, and the instance.
    pub(super) fn processes(&self) -> [u32; 2] {
        [self.nginx.pid(), self.instance.pid()]
    }

    /// Runs `work` while they run. Before and after that they are stopped, whatever else is measured.
    pub(super) fn awake<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.tell(Signal::SIGCONT)?;
        let done = work();
        self.stop()?;
        done
    }

    /// Stops both: nginx polls the instance all the time.
    fn stop(&self) -> Result<()> {
        thread::sleep(REST);
        self.tell(Signal::SIGSTOP)?;
        let (begun, before) = (Instant::now(), self.used()?);
        thread::sleep(REST);
        let used = self.used()?.saturating_sub(before);
        ensure!(
            used < begun.elapsed() / 10,
            "F-Stack's processes go on while they should stand still: {used:?}"
        );
        Ok(())
    }

    fn used(&self) -> Result<Duration> {
        self.processes().iter().map(|pid| on_cpu(*pid)).sum()
    }

    fn tell(&self, signal: Signal) -> Result<()> {
        for pid in self.processes() {
            // With nginx its worker.
            killpg(Pid::from_raw(i32::try_from(pid)?), signal)
                .with_context(|| format!("{signal} to F-Stack's processes"))?;
        }
        Ok(())
    }
}

/// Creates a link as for all others, with what AF_XDP needs of it. Deferring the device's interrupts to the
/// poller (napi_defer_hard_irqs, which DPDK advises) makes the adapter slower over veth, at any delay.
fn link() -> Result<(Namespace, Namespace)> {
    let (near, far) = joined()?;
    // A kernel omits checksums where the other end is on the same machine, and AF_XDP has no flag for that.
    run(far.command("ethtool").args(["-K", DEVICE, "tx", "off"]))?;
    Ok((near, far))
}

/// Returns the environment variables of the adapter.
fn variables(core: usize) -> Result<Vec<(String, String)>> {
    let pair = |(name, value): (&str, String)| (name.to_owned(), value);
    let all = [
        ("FF_NB_FSTACK_INSTANCE", "1".to_owned()),
        ("FF_INITIAL_LCORE_ID", format!("0x{}", mask(core)?)),
        ("FF_PROC_ID", "0".to_owned()),
    ];
    Ok(all.into_iter().map(pair).collect())
}
