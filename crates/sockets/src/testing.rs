//! A guardian for tests.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uncork_driver::{Driver as _, memory};
use uncork_stack::{Detached, Mac};

use crate::asked::Setting;
use crate::host::{Attachment, Device, Host, Opened, Past, Reason};

/// What comes unasked, and what is passed on.
#[derive(Default)]
pub(crate) struct Mail {
    pub(crate) comes: VecDeque<(SocketAddr, OwnedFd)>,
    pub(crate) goes: Vec<(SocketAddr, RawFd)>,
    /// The devices that can be opened.
    pub(crate) devices: Vec<Device>,
    /// Or the instance that has them.
    pub(crate) attachment: Option<Attachment>,
    /// The ports at which what comes is the kernel's.
    pub(crate) kernels: VecDeque<SocketAddr>,
    /// The other end of a device.
    pub(crate) far: Option<memory::Port>,
    /// How many frames had come there when each connection was entered into the list.
    pub(crate) entered: Vec<usize>,
}

/// Returns a device with the address 10.0.0.1.
pub(crate) fn device(driver: memory::Port) -> Device {
    Device {
        name: "eth0".into(),
        index: 1,
        driver: Box::new(driver),
        mac: Mac([2; 6]),
        addresses: vec!["10.0.0.1/24".parse().unwrap()],
        moderation: Duration::ZERO,
    }
}

/// A privileged half that has no privilege.
pub(crate) struct Post(pub(crate) Arc<Mutex<Mail>>);

impl Host for Post {
    fn another(&self) -> Box<dyn Host> {
        Box::new(Self(Arc::clone(&self.0)))
    }
    fn open(&mut self) -> Result<Opened, Reason> {
        let mut mail = self.0.lock().unwrap();
        if let Some(attachment) = mail.attachment.take() {
            return Ok(Opened::Attached(Box::new(attachment)));
        }
        Ok(Opened::Own(std::mem::take(&mut mail.devices)))
    }
    fn can_close_devices(&self) -> bool {
        true
    }
    fn next_kernels(&mut self) -> Option<SocketAddr> {
        self.0.lock().unwrap().kernels.pop_front()
    }
    fn own(&mut self, _: SocketAddr, _: RawFd) -> Result<(), Reason> {
        Ok(())
    }
    fn disown(&mut self, _: SocketAddr) {}
    fn pass_on(&mut self, local: SocketAddr, waiting: OwnedFd) -> Result<(), Reason> {
        self.0.lock().unwrap().goes.push((local, waiting.as_raw_fd()));
        Ok(())
    }
    fn to_kernel(&mut self, _: &Detached, _: bool, _: &[Setting]) -> Result<OwnedFd, Reason> {
        Err("detached".into())
    }
    fn has_others(&mut self, _: SocketAddr) -> bool {
        false
    }
    fn next_passed(&mut self) -> Option<(SocketAddr, OwnedFd)> {
        self.0.lock().unwrap().comes.pop_front()
    }
    fn next_asker(&mut self) -> Option<OwnedFd> {
        None
    }

    fn own_connection(&mut self, _: SocketAddr, _: SocketAddr, _: RawFd) -> Result<(), Reason> {
        Ok(())
    }
    fn reserve(&mut self, _: IpAddr, _: SocketAddr, _: u16, _: RawFd) -> Result<u32, Reason> {
        Err("none".into())
    }
    fn reserved(&mut self, _: u32) -> Result<Vec<u16>, Reason> {
        Err("none".into())
    }
    fn forsake(&mut self, _: u32) {}
    fn settle(&mut self) {}
    fn are_past(&mut self, _: Past) -> bool {
        true
    }
    fn disown_connection(&mut self, _: SocketAddr, _: SocketAddr) {}
    fn bring(&mut self, _: (SocketAddr, SocketAddr), _: RawFd, _: &[u8]) {}
    fn let_go(&mut self, _: &Detached) -> Result<(), Reason> {
        Ok(())
    }
    fn wakes(&self) -> Option<RawFd> {
        None
    }
    fn is_gone(&mut self) -> bool {
        false
    }
    fn is_to_be_left(&mut self) -> bool {
        false
    }
    fn quit(&mut self) {}
    fn enter(&mut self, _: SocketAddr, _: SocketAddr) -> Option<u32> {
        let mut mail = self.0.lock().unwrap();
        let come = mail.far.as_mut().map_or(0, |far| far.receive(10, &mut |_| ()).unwrap());
        mail.entered.push(come);
        None
    }
    fn leave(&mut self, _: u32) {}
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }
}
