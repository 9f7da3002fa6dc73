//! All test files in one program: one link, and waiting tests run beside working ones.

mod ack;
mod bare;
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
