//! Two stacks and a network, all three driven by the input: what is read is what was written, in
//! order and once, and everything comes to an end.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use uncork_sim::{Conditions, Pair, Setup};
use uncork_stack::{Config, Ecn, RecvError, SendError, Shutdown, SocketId, SocketOption};

struct End {
    host: usize,
    socket: SocketId,
    sent: usize,
    received: usize,
    over: bool,
}

fn pattern(n: usize) -> u8 {
    (n % 251) as u8
}

impl End {
    fn send(&mut self, pair: &mut Pair, bytes: usize, more: bool) {
        let chunk: Vec<u8> = (self.sent..self.sent + bytes).map(pattern).collect();
        let now = pair.now;
        match pair.hosts[self.host].stack.send(now, self.socket, &chunk, more) {
            Ok(taken) => self.sent += taken,
            Err(SendError::WouldBlock | SendError::Closed) => {}
            Err(_) => self.over = true,
        }
    }

    fn receive(&mut self, pair: &mut Pair, bytes: usize) -> bool {
        let mut buffer = vec![0; bytes];
        let now = pair.now;
        match pair.hosts[self.host].stack.recv(now, self.socket, &mut buffer) {
            Ok(count) if count > 0 => {
                let right = (self.received..).map(pattern);
                assert!(buffer[..count].iter().copied().zip(right).all(|(is, was)| is == was));
                self.received += count;
                true
            }
            Err(RecvError::WouldBlock) => false,
            Ok(_) | Err(_) => {
                self.over = true;
                false
            }
        }
    }
}

fn conditions(a: u8, b: u8) -> Conditions {
    Conditions {
        delay: Duration::from_millis((a & 31).into()),
        rate: (a & 32 != 0).then_some(2_000_000),
        queue_bytes: (a & 64 != 0).then_some(10_000),
        loss: f64::from(b & 3) * 0.05,
        reorder: f64::from(b >> 2 & 3) * 0.1,
        jitter: Duration::from_millis(20),
        duplicate: f64::from(b >> 4 & 3) * 0.1,
        corrupt: f64::from(b >> 6 & 3) * 0.02,
        mark_bytes: (a & 128 != 0).then_some(3000),
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[a, b, c, d, seed, config], steps)) = input.split_first_chunk() else { return };
    let config = Config {
        pacing: config & 1 == 0,
        autocork: config & 2 == 0,
        ecn: if config & 4 == 0 { Ecn::Asked } else { Ecn::Granted },
        receive_buffer_bytes: (4096 << (config >> 6), 1 << 20),
        ..Config::default()
    };
    let setup = Setup {
        configs: [config.clone(), config],
        ways: [conditions(a, b), conditions(c, d)],
        seed: seed.into(),
        ..Setup::default()
    };
    let mut pair = Pair::new(&setup);
    let listener = pair.listen(80);
    let client = pair.begin_connect(80);
    let mut server = None;
    let deadline = pair.now + Duration::from_secs(200);
    pair.run_while(deadline, |pair| {
        server = server.or_else(|| pair.hosts[1].stack.accept(listener));
        server.is_none() && pair.hosts[0].stack.take_error(client).is_none()
    });
    let Some(server) = server else { return };
    let end = |host, socket| End { host, socket, sent: 0, received: 0, over: false };
    let mut ends = [end(0, client), end(1, server)];
    for step in steps.chunks_exact(2).take(300) {
        let (what, how) = (step[0], usize::from(step[1]));
        let end = &mut ends[usize::from(what >> 7)];
        let (now, socket, on) = (pair.now, end.socket, how & 1 == 1);
        let stack = &mut pair.hosts[end.host].stack;
        match what & 15 {
            0..=3 => end.send(&mut pair, how * 50 + 1, on),
            4..=7 => {
                end.receive(&mut pair, how * 100 + 1);
            }
            8..=10 => pair.run_for(Duration::from_millis(how as u64 * 2)),
            11 => {
                stack.set_option(now, socket, SocketOption::NoDelay(on));
            }
            12 => {
                stack.set_option(now, socket, SocketOption::Cork(on));
            }
            13 if on => stack.hold(now, socket),
            13 => stack.release(now, socket),
            14 => {
                stack.set_option(now, socket, SocketOption::QuickAck(on));
            }
            _ if how > 250 => stack.shutdown(now, socket, Shutdown::Write),
            _ => {}
        }
        pair.drive();
    }
    for end in &ends {
        let (now, stack) = (pair.now, &mut pair.hosts[end.host].stack);
        stack.release(now, end.socket);
        stack.set_option(now, end.socket, SocketOption::Cork(false));
        stack.shutdown(now, end.socket, Shutdown::Write);
    }
    let deadline = pair.now + Duration::from_secs(3 * 3600);
    let ended = pair.run_while(deadline, |pair| {
        for end in &mut ends {
            while end.receive(pair, 65_536) {}
        }
        !ends.iter().all(|end| end.over)
    });
    assert!(ended, "it has no end");
    assert!(ends[0].received <= ends[1].sent && ends[1].received <= ends[0].sent);
});
