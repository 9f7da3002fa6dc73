//! Scratch.
use std::time::{Duration, Instant};
fn main() {
    let mut t = uncork_bpf::Tracer::start(uncork_bpf::Settings::default()).unwrap();
    for a in t.absent() { println!("absent: {a}"); }
    let mut args = std::env::args().skip(1);
    let secs: f64 = args.next().unwrap().parse().unwrap();
    for p in args { t.trace(p.parse().unwrap()).unwrap(); }
    t.find_open().unwrap();
    println!("tracing {:?}", t.traced());
    let end = Instant::now() + Duration::from_secs_f64(secs);
    while Instant::now() < end {
        for e in t.poll(Duration::from_millis(100)).unwrap() { println!("{:?}", e); }
    }
    let r = t.finish().unwrap();
    println!("{:#?} {} {}", r.events.iter().take(3).collect::<Vec<_>>(), r.dropped, r.refused);
    println!("{}", r.events.len());
}
