//! Engines at the two ends of a cable in memory.

use uncork_driver::Driver as _;
use uncork_driver::memory::Port;
use uncork_engine::{Engine, Events};
use uncork_stack::{Config, Mac, Stack};

/// Makes the engine with the address 10.0.0.`number`.
pub(crate) fn end(device: Port, number: u8) -> Engine<Port> {
    let mac = Mac([2, 0, 0, 0, 0, number]);
    let mut stack = Stack::new(Config::default(), device.capabilities(), mac, [number; 32]);
    stack.add_address(format!("10.0.0.{number}/24").parse().unwrap());
    Engine::new(device, stack)
}

pub(crate) fn turn(end: &mut Engine<Port>) {
    let _ = end.turn(&mut Events::default()).unwrap();
}
