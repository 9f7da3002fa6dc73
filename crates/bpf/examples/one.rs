//! Scratch.
fn main() {
    for n in std::env::args().skip(2) {
        let mut o = libbpf_rs::ObjectBuilder::default().open_file(std::env::args().nth(1).unwrap()).unwrap();
        for mut p in o.progs_mut() { let w = p.name() == n.as_str(); p.set_autoload(w); }
        match o.load() { Ok(o) => { let r = o.progs_mut().find(|p| p.name() == n.as_str()).map(|p| p.attach().map(|_| ())); println!("{n}: loaded, {r:?}"); } Err(e) => println!("{n}: {e:?}") }
    }
}
