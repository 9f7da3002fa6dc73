//! A stack for each thread (`uncork run --stack --thread-sockets`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use uncork_e2e::{Daemon, Hosts, instance};

use crate::on_stack::examples::{built, header};
use crate::on_stack::instances::{attachments, end_by, pids};
use crate::on_stack::stat::stat;
use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 8089;
/// The ports of programs that are on an instance already.
const OTHERS: [u16; 2] = [8090, 8091];
const NEEDED: [(&str, &str); 1] = [("cc", "gcc")];
const EXAMPLE: &str = "helloworld_stack_thread_socket";
const CLIENTS: usize = 8;
const CONNECTIONS: usize = 12;

fn starting(hosts: &Hosts, scratch: &Scratch, mut command: Command, n: usize) -> Result<Daemon> {
    command.arg(PORT.to_string()).arg(n.to_string());
    let server = Daemon::on_stack(command, &scratch.path("log"), hosts, PORT)?;
    // The first thread is up before the others, whose first connections may go to the kernel.
    let mut seen = BTreeSet::new();
    wait_until("every thread serves from its stack", || {
        let mut stream = hosts.connect(PORT)?;
        let by = header(&mut stream, "Server")?;
        if header(&mut stream, "Place")? == "stack" {
            seen.insert(by);
        }
        Ok(seen.len() == n)
    })?;
    Ok(server)
}

/// Returns which threads have served a crowd whose connections are all open at once.
fn served(hosts: &Hosts) -> Result<BTreeSet<String>> {
    let served = hosts.crowd(CLIENTS, |_| {
        let (mut by, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let mut stream = hosts.connect(PORT)?;
            by.push(header(&mut stream, "Server")?);
            ensure!(header(&mut stream, "Place")? == "stack", "not on the stack");
            streams.push(stream);
        }
        for stream in &mut streams {
            by.push(header(stream, "Server")?);
        }
        Ok(by)
    })?;
    Ok(served.into_iter().flatten().collect())
}

#[test]
fn a_thread_with_a_stack_of_its_own_serves_nobody() -> Result<()> {
    if lacks(&NEEDED)? || instance::are_wanted() {
        return Ok(());
    }
    let hosts = Hosts::new("threads")?;
    let scratch = Scratch::new()?;
    let program = built(&scratch, EXAMPLE, &[])?;
    let command = hosts.on_stack_with(&["--thread-sockets"], &program)?;
    let server = starting(&hosts, &scratch, command, 3)?;
    let before = hosts.counted()?;
    let threads = served(&hosts)?;
    ensure!(threads.len() == 3, "of three threads these have served: {threads:?}");
    hosts.check_all_on_stack(before)?;
    ensure!(hosts.packet_sockets()? == 3, "{} stacks", hosts.packet_sockets()?);

    // Any of the stacks reports on all.
    let held: Vec<_> = (0..24).map(|_| hosts.connect(PORT)).collect::<Result<_>>()?;
    let (said, code) = stat(server.pid(), &["--json"])?;
    ensure!(code == Some(0), "{said}, {code:?}");
    let report: Value = serde_json::from_str(&said)?;
    let connections = report["connections"].as_array().map_or(0, Vec::len);
    let all = CLIENTS * CONNECTIONS + held.len();
    let came = report["counts"]["passive_opens"].as_u64().unwrap_or(0);
    ensure!(
        connections >= held.len() && came >= all as u64,
        "{connections}, {came} of {all}: {said}"
    );
    drop(held);
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn f_stack_s_variable_for_it_is_ignored() -> Result<()> {
    if lacks(&NEEDED)? || instance::are_wanted() || Hosts::is_for_threads() {
        return Ok(());
    }
    let hosts = Hosts::new("ffthreads")?;
    let scratch = Scratch::new()?;
    let program = built(&scratch, EXAMPLE, &[])?;
    for (value, stacks) in [("1", 2), ("0", 1)] {
        let mut command = hosts.on_stack(&program)?;
        command.env("FF_THREAD_SOCKET", value);
        let server = starting(&hosts, &scratch, command, 2)?;
        let threads = served(&hosts)?;
        ensure!(threads.len() == 2, "{threads:?}");
        ensure!(hosts.packet_sockets()? == stacks, "{} stacks", hosts.packet_sockets()?);
        server.stop(Signal::SIGTERM)?;
        hosts.check_nothing_left(PORT)?;
    }
    Ok(())
}

/// A kill resets the connections of all stacks, and not only one's.
#[test]
fn peers_of_one_thread_wait_for_ever_when_all_are_killed() -> Result<()> {
    if lacks(&NEEDED)? || instance::are_wanted() {
        return Ok(());
    }
    let hosts = Hosts::new("killthreads")?;
    let scratch = Scratch::new()?;
    let program = built(&scratch, EXAMPLE, &[])?;
    let command = hosts.on_stack_with(&["--thread-sockets"], &program)?;
    let server = starting(&hosts, &scratch, command, 3)?;
    let mut by = BTreeSet::new();
    let mut streams = Vec::new();
    for _ in 0..24 {
        let mut stream = hosts.connect(PORT)?;
        by.insert(header(&mut stream, "Server")?);
        streams.push(stream);
    }
    ensure!(by.len() == 3, "{by:?}");
    server.stop(Signal::SIGKILL)?;
    for mut stream in streams {
        let said = stream.read(&mut [0]);
        let kind = said.as_ref().map_err(std::io::Error::kind);
        ensure!(kind == Err(ErrorKind::ConnectionReset), "{said:?}");
    }
    hosts.check_nothing_left(PORT)
}

/// Returns one connection of each thread, by the thread's name.
fn one_of_each(hosts: &Hosts, threads: usize) -> Result<BTreeMap<String, TcpStream>> {
    let mut streams = BTreeMap::new();
    wait_until("every thread has a connection on the stack", || {
        let mut stream = hosts.connect(PORT)?;
        let by = header(&mut stream, "Server")?;
        if header(&mut stream, "Place")? == "stack" {
            streams.entry(by).or_insert(stream);
        }
        Ok(streams.len() == threads)
    })?;
    Ok(streams)
}

/// Each thread of one program is on an instance of its own, whose end is the end of that thread's
/// connections, and of no other's.
#[test]
fn threads_share_an_instance_while_another_one_has_nobody() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::with_instances("instthreads", 3)?;
    let scratch = Scratch::new()?;
    let program = built(&scratch, EXAMPLE, &[])?;
    // One instance has more programs than the others: the program's own threads count first.
    let others = OTHERS.map(|port| {
        let mut command = hosts.on_stack(&program)?;
        command.env("FF_PROC_ID", "0").args([port.to_string(), "1".to_owned()]);
        Daemon::on_stack(command, &scratch.path(&format!("log-{port}")), &hosts, port)
    });
    let others = others.into_iter().collect::<Result<Vec<_>>>()?;
    let command = hosts.on_stack_with(&["--thread-sockets"], &program)?;
    let server = starting(&hosts, &scratch, command, 3)?;
    let all = pids(&hosts)?;
    let places = || {
        let mut places = all.iter().map(|pid| attachments(&[*pid])).collect::<Result<Vec<_>>>()?;
        places.sort_unstable();
        anyhow::Ok(places)
    };
    ensure!(places()? == [1, 1, 3], "on each of the instances: {:?}", places()?);
    others.into_iter().try_for_each(|other| other.stop(Signal::SIGTERM).map(drop))?;
    wait_until("the threads are left", || Ok(places()? == [1, 1, 1]))?;
    let before = hosts.counted()?;
    let threads = served(&hosts)?;
    ensure!(threads.len() == 3, "of three threads these have served: {threads:?}");
    hosts.check_all_on_stack(before)?;

    let mut streams = one_of_each(&hosts, 3)?;
    end_by(Signal::SIGKILL, all[0])?;
    let gone = streams.values_mut().filter_map(|stream| header(stream, "Place").err()).count();
    ensure!(gone == 1, "{gone} of three threads have lost their connections with one instance");
    wait_until("there is another instance, which that thread is on", || {
        let new = pids(&hosts)?;
        Ok(new.len() == 3 && new != all && attachments(&new)? == 3)
    })?;
    one_of_each(&hosts, 3)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}
