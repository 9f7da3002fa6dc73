//! The calls that led to a write, by name.

use std::collections::HashMap;

use uncork_bpf::Stack;

use super::symbols::Symbols;
use super::unwind;

/// How many calls of a stack are shown.
const SHOWN: usize = 6;
/// How CPython marks its own functions in the perf map.
const PYTHON: &str = "py::";

/// The call stacks seen so far.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    symbols: Symbols,
    places: HashMap<u64, Vec<String>>,
}

impl Stacks {
    /// Notes a stack. The process must still exist: the names are in its files.
    pub(super) fn told(&mut self, stack: &Stack) {
        let image = self.symbols.image(stack.pid);
        let calls = unwind::calls(stack, &image);
        let names = calls.iter().map(|at| image.name(*at)).collect();
        self.places.insert(stack.place, worth_telling(names));
    }

    /// Returns the calls at a place, innermost first.
    pub(super) fn at(&self, place: u64) -> Vec<String> {
        self.places.get(&place).cloned().unwrap_or_default()
    }
}

/// Returns whether it is in a package of Go's own library between a program and its socket.
fn of_go(name: &str) -> bool {
    ["runtime.", "runtime/", "internal/", "syscall.", "net.("]
        .iter()
        .any(|own| name.starts_with(own))
}

fn worth_telling(mut names: Vec<String>) -> Vec<String> {
    // What the C library adds at either end says nothing about the program.
    let of_libc = |name: &String| name.contains("(libc.so") || name.contains("(ld-linux");
    let unnamed = |name: &String| name.starts_with("libc.so") || name.starts_with("ld-linux");
    let own = |name: &String| !of_libc(name) && !unnamed(name) && !of_go(name);
    if let (Some(first), Some(last)) = (names.iter().position(own), names.iter().rposition(own)) {
        names.truncate(last + 1);
        names.drain(..first);
    }
    // The interpreter between two functions of Python says nothing either.
    if names.iter().any(|name| name.starts_with(PYTHON)) {
        names.retain(|name| name.starts_with(PYTHON));
    }
    if names.len() > SHOWN {
        names.truncate(SHOWN);
        names.push("…".to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(names: &[&str]) -> Vec<String> {
        worth_telling(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn the_c_library_is_left_out_at_both_ends() {
        let names =
            ["write (libc.so.6)", "put (a)", "qsort (libc.so.6)", "main (a)", "libc.so.6+0x1"];
        assert_eq!(told(&names), ["put (a)", "qsort (libc.so.6)", "main (a)"]);
        assert_eq!(told(&["write (libc.so.6)"]), ["write (libc.so.6)"]);
    }

    #[test]
    fn functions_of_python_are_told_without_the_interpreter() {
        let names =
            ["sock_send (python3)", "py::put:/a.py", "_PyEval_Vector (python3)", "py::serve:/a.py"];
        assert_eq!(told(&names), ["py::put:/a.py", "py::serve:/a.py"]);
    }

    #[test]
    fn long_stacks_are_cut() {
        let names: Vec<String> = (0..40).map(|n| format!("f{n} (a)")).collect();
        assert_eq!(worth_telling(names).len(), SHOWN + 1);
    }
}
