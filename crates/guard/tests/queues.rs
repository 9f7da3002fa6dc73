//! Which program gets which queue of a device, and what arrives by it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use uncork_driver::{Beside, Door, Driver as _, af_packet, af_xdp};
use uncork_guard::{Error, Guard, Plan, Share, devices};
use uncork_guardian::{Client, look};
use uncork_netns::testing::is_skipped;

use crate::common::{LONG, Link, OURS, end, knock_from};

const PORT: u16 = 7600;
const REMOTES: std::ops::Range<u16> = 20_000..20_040;

/// A program, or an instance, that has opened the device.
struct Stack {
    client: Client,
    driver: Beside,
    door: Door,
}

impl Stack {
    fn new(mut client: Client) -> Self {
        assert!(client.has_queues());
        let handed = client.open(client.devices()[0].index).unwrap();
        let (driver, door) = Beside::new(af_packet::Port::adopt(handed).unwrap()).unwrap();
        Self { client, driver, door }
    }

    /// Returns its queues, sorted, after those that have come were taken in: one that the kernel
    /// has not let go of yet (EBUSY) comes after those that were free at once.
    fn queues(&mut self) -> Vec<u32> {
        self.client.check().unwrap();
        while let Some((device, handed)) = self.client.next_queue() {
            assert_eq!(device, self.client.devices()[0].index);
            self.door.bring(af_xdp::Port::adopt(handed).unwrap()).unwrap();
        }
        self.driver.has_frames();
        let mut queues = self.driver.redirected().unwrap().queues;
        queues.sort_unstable();
        queues
    }

    /// Waits until it has these queues.
    fn has(&mut self, queues: &[u32]) {
        let begun = Instant::now();
        while self.queues() != queues {
            assert!(begun.elapsed() < LONG, "{:?} instead of {queues:?}", self.queues());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it has one queue, whichever it is.
    fn has_one(&mut self) {
        let begun = Instant::now();
        while self.queues().len() != 1 {
            assert!(begun.elapsed() < LONG, "{:?}", self.queues());
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn listen(&mut self, link: &Link) -> TcpListener {
        let listen = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_port(true)?;
            socket.bind(&end(OURS, PORT).into())?;
            socket.listen(8)?;
            Ok(TcpListener::from(socket))
        };
        let listener = link.ours.within(listen).unwrap();
        self.client.own(end(OURS, PORT), listener.as_fd()).unwrap();
        listener
    }
}

/// Returns to which stack each remote port's SYN comes.
fn seen(link: &Link, stacks: &mut [&mut Stack]) -> BTreeMap<u16, usize> {
    let remotes: Vec<u16> = REMOTES.collect();
    knock_from(link, &remotes, end(OURS, PORT));
    let mut seen = BTreeMap::new();
    let until = Instant::now() + LONG;
    while seen.len() < remotes.len() {
        assert!(Instant::now() < until, "{} of {} came", seen.len(), remotes.len());
        for (at, stack) in stacks.iter_mut().enumerate() {
            let each = &mut |frame: uncork_packet::Received<'_>| {
                let from = u16::from_be_bytes([frame.bytes[34], frame.bytes[35]]);
                let before = seen.insert(from, at);
                assert!(before.is_none_or(|other| other == at), "it has come to two");
            };
            stack.driver.receive(64, each).unwrap();
        }
    }
    seen
}

fn frames(stack: &Stack) -> u64 {
    stack.driver.redirected().unwrap().frames
}

#[test]
fn each_program_has_a_queue_and_gets_all_that_is_its() {
    if is_skipped("each_program_has_a_queue_and_gets_all_that_is_its") {
        return;
    }
    let link = Link::with_queues("queues", 2, 1);
    let mut first = Stack::new(link.client());
    first.has(&[0]);
    let mut second = Stack::new(link.client());
    second.has(&[1]);
    let mut third = Stack::new(link.client());
    let listeners = [first.listen(&link), second.listen(&link), third.listen(&link)];
    let by_stack = seen(&link, &mut [&mut first, &mut second, &mut third]);
    for at in 0..3 {
        assert!(by_stack.values().filter(|other| **other == at).count() > 3, "{by_stack:?}");
    }
    assert!(frames(&first) > 0 && frames(&second) > 0);
    assert_eq!((third.queues(), frames(&third)), (Vec::new(), 0));
    // A program that ends leaves its queue to one that has none.
    drop((second, listeners));
    third.has(&[1]);
    assert_eq!(first.queues(), [0]);
    let listeners = [first.listen(&link), third.listen(&link)];
    let before = frames(&first);
    let by_stack = seen(&link, &mut [&mut first, &mut third]);
    let its = by_stack.values().filter(|at| **at == 0).count() as u64;
    let came = frames(&first) - before;
    assert!(came > 0 && came < its, "some of {its} came the longer way: {came} by the queue");
    assert!(frames(&third) > 0);
    drop(listeners);
}

#[test]
fn one_program_has_all_queues_if_that_is_said() {
    if is_skipped("one_program_has_all_queues_if_that_is_said") {
        return;
    }
    let link = Link::with_queues("queuesall", 2, 2);
    let mut stack = Stack::new(link.client());
    stack.has(&[0, 1]);
    let _listener = stack.listen(&link);
    let by_stack = seen(&link, &mut [&mut stack]);
    assert!(frames(&stack) >= by_stack.len() as u64, "all by queues");
    let mut other = Stack::new(link.client());
    drop(stack);
    other.has(&[0, 1]);
}

#[test]
fn a_queue_of_another_programs_holds_up_no_other() {
    if is_skipped("a_queue_of_another_programs_holds_up_no_other") {
        return;
    }
    let link = Link::with_queues("queuesheld", 3, 1);
    let hold = || {
        let settings = af_xdp::Settings { queue: 1, ..af_xdp::Settings::new("eth0") };
        Ok(af_xdp::Handed::open(&settings)?)
    };
    let held = link.ours.within(hold).unwrap();
    let mut first = Stack::new(link.client());
    first.has(&[0]);
    let mut second = Stack::new(link.client());
    second.has(&[2]);
    let mut third = Stack::new(link.client());
    assert_eq!(third.queues(), Vec::<u32>::new());
    let why = missing(&link);
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(
        why[0].starts_with(
            "eth0:1 cannot be had: the device eth0 (its queue 1) is held by another program"
        ),
        "{why:?}"
    );
    drop(held);
    third.has(&[1]);
    assert_eq!(missing(&link), [""; 0]);
    let mut fourth = Stack::new(link.client());
    assert_eq!(fourth.queues(), Vec::<u32>::new());
    let why = missing(&link);
    assert!(why[0].starts_with("eth0 has 3 queues, and others have what"), "{why:?}");
}

/// Returns what the guardian says about why a stack of this process lacks queues.
fn missing(link: &Link) -> Vec<String> {
    let (_hears, tells) = std::os::unix::net::UnixStream::pair().unwrap();
    let (place, pid) = (link.place.parse().unwrap(), std::process::id());
    link.ours.within(move || Ok(look(&place, vec![pid], tells.as_fd())?)).unwrap()
}

/// Otherwise no program would ever get that many, and would be told that others have them.
#[test]
fn more_queues_than_a_device_has_are_refused() {
    if is_skipped("more_queues_than_a_device_has_are_refused") {
        return;
    }
    let link = Link::with_queues("queuesmany", 2, 2);
    let error = another(&link, 3).unwrap_err();
    assert!(matches!(error, Error::Queues { queues: 2, wanted: 3, .. }), "{error}");
    assert!(error.to_string().starts_with("the network device eth0 has 2 queues"), "{error}");
}

#[test]
fn instances_have_the_same_queues_again() {
    if is_skipped("instances_have_the_same_queues_again") {
        return;
    }
    let one = Link::of_instances("queuesone", 2, 1);
    Stack::new(one.instance(0)).has(&[0, 1]);
    drop(one);
    let two = Link::of_instances("queuestwo", 2, 2);
    let mut second = Stack::new(two.instance(1));
    second.has(&[1]);
    let mut first = Stack::new(two.instance(0));
    first.has(&[0]);
    drop((first, second));
    let begun = Instant::now();
    let client = loop {
        let (place, token) = (two.place.clone(), two.tokens[1].clone());
        // The guardian may not have noticed yet that the other is gone.
        match two.ours.within(move || Ok(Client::serve(&place, &token)?)) {
            Ok(client) => break client,
            Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
        }
    };
    Stack::new(client).has(&[1]);
    drop(two);
    // More than there are queues.
    let three = Link::of_instances("queuesthree", 2, 3);
    let mut last = Stack::new(three.instance(2));
    assert_eq!(last.queues(), Vec::<u32>::new());
    let why = missing(&three);
    assert!(why[0].starts_with("eth0 has 2 queues, and others have what"), "{why:?}");
}

fn shown(link: &Link) -> String {
    let shown = link.ours.command("ip").args(["link", "show", "dev", "eth0"]).output().unwrap();
    String::from_utf8(shown.stdout).unwrap()
}

/// Starts another guardian on the same host.
fn another(link: &Link, queues: u32) -> Result<Guard, Error> {
    let begin = move || {
        let (devices, program) = (devices::find(&[])?, std::process::id());
        let queues = std::num::NonZeroU32::new(queues).map(Share::Each);
        Ok(Guard::new(Plan { devices, ports: Vec::new(), queues, program }))
    };
    link.ours.within(begin).unwrap()
}

#[test]
fn a_device_that_has_an_xdp_program_keeps_it() {
    if is_skipped("a_device_that_has_an_xdp_program_keeps_it") {
        return;
    }
    let mut link = Link::with_queues("queuestaken", 2, 1);
    let before = shown(&link);
    assert!(before.contains("prog/xdp"), "{before}");
    let error = another(&link, 1).unwrap_err();
    assert!(matches!(error, Error::Port(_)), "the first queue is another's: {error}");
    // One stack keeps the program alive alone.
    let mut stack = Stack::new(link.client());
    stack.has(&[0]);
    let mut other = Stack::new(link.client());
    other.has(&[1]);
    drop(stack);
    let error = another(&link, 1).unwrap_err();
    assert!(matches!(&error, Error::Occupied { device, .. } if device == "eth0"), "{error}");
    assert_eq!(shown(&link), before);
    // Packet sockets work beside any other program's.
    another(&link, 0).unwrap();
    // The program is gone soon after all stacks are, though the guardian still serves newcomers.
    link.end_first();
    assert_eq!(shown(&link), before, "one is connected");
    drop(other);
    drop(another(&link, 1).unwrap());
    // Whichever queue: the other guardian had the first until just now, and the kernel lets go of
    // it in its own time (xp_release_deferred).
    let mut stack = Stack::new(link.client());
    stack.has_one();
    assert!(shown(&link).contains("prog/xdp"));
}
