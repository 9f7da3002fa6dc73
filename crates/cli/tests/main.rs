//! All of them in one program: it is linked once, and what waits is beside what works.

mod ack;
mod common;
mod damaged;
mod doctor;
mod documents;
mod generate;
mod guardian;
mod instances;
mod run;
mod service;
mod stack;
mod stats;
mod status;
