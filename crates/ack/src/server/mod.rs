//! `uncork ack server`: a listening process, and a process for each connection.

mod children;
mod connection;
mod report;

use std::net::TcpListener;
use std::os::fd::OwnedFd;

use nix::poll::PollFlags;
use serde_json::json;

use crate::arguments::Server;
use crate::error::Error;
use crate::output::{complain, say, say_json};
use crate::signals::{Request, Signals};
use crate::sockets::{self, awaited, ready, wait};
use children::{CONNECTION, Children};

/// Runs the server, or the process of one connection if a server has started this one.
pub(crate) fn run(options: &Server) -> Result<i32, Error> {
    match std::env::var(CONNECTION) {
        Ok(number) => connection::run(options, &number),
        Err(_) => Listening::begin(options)?.serve(),
    }
}

struct Listening<'a> {
    options: &'a Server,
    listener: TcpListener,
    signals: Signals,
    children: Children,
}

impl<'a> Listening<'a> {
    fn begin(options: &'a Server) -> Result<Self, Error> {
        let signals = Signals::take().map_err(Error::call("block signals"))?;
        let listener = sockets::listen(options.bind.as_deref(), options.port)?;
        // A client that disconnects between poll and accept must not make accept block.
        listener.set_nonblocking(true).map_err(Error::call("prepare the listening socket"))?;
        let address = listener.local_addr().map_err(Error::call("tell the port"))?;
        if options.json {
            let (event, pid) = ("listening", std::process::id());
            say_json(&json!({ "event": event, "port": address.port(), "pid": pid }))?;
        } else {
            say(format_args!("server: listening on port {}", address.port()))?;
        }
        Ok(Self { options, listener, signals, children: Children::default() })
    }

    /// Serves until the last of the requested connections has ended, or a signal comes.
    fn serve(mut self) -> Result<i32, Error> {
        loop {
            let wanted = self.options.connections;
            let accepting = wanted.is_none_or(|most| self.children.started() < most);
            if !accepting && self.children.all_ended() {
                return Ok(self.children.status());
            }
            let events = if accepting { PollFlags::POLLIN } else { PollFlags::empty() };
            let mut fds =
                [awaited(&self.signals, PollFlags::POLLIN), awaited(&self.listener, events)];
            wait(&mut fds, None).map_err(Error::call("wait for a connection"))?;
            let came = !ready(&fds[1]).is_empty();
            for request in self.signals.requests().map_err(Error::call("read signals"))? {
                match request {
                    Request::End => {
                        self.children.end();
                        return Ok(self.children.status());
                    }
                    Request::Pause => self.children.pause(),
                    Request::Child => self.children.reap(),
                }
            }
            if accepting && came {
                self.accept()?;
            }
        }
    }

    fn accept(&mut self) -> Result<(), Error> {
        use std::io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        match self.listener.accept() {
            Ok((socket, _)) => self.children.start(OwnedFd::from(socket)),
            Err(cause) if matches!(cause.kind(), ConnectionAborted | Interrupted | WouldBlock) => {
                Ok(())
            }
            Err(cause) => {
                let error = Error::Call { what: "accept a connection", cause };
                complain(&error);
                // The descriptors are exhausted, say. Connections being served must not suffer from it.
                if self.children.all_ended() {
                    return Err(error);
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
                self.children.reap();
                Ok(())
            }
        }
    }
}
