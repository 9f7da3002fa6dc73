//! Programs of each kind, built here by the C compiler and by patching its output.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

struct Fixtures(tempfile::TempDir);

impl Fixtures {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles an empty program with further `flags`.
    fn compile(&self, name: &str, flags: &[&str]) -> PathBuf {
        self.compile_source(name, "int main(void) { return 0; }\n", flags)
    }

    fn compile_source(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let (input, output) = (self.path(&format!("{name}.c")), self.path(name));
        fs::write(&input, source).unwrap();
        let status =
            Command::new("cc").arg(&input).arg("-o").arg(&output).args(flags).status().unwrap();
        assert!(status.success());
        output
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Returns a copy of `program` with bytes replaced at an offset.
    fn patched(&self, program: &Path, patches: &[(usize, &[u8])]) -> PathBuf {
        let mut bytes = fs::read(program).unwrap();
        for (offset, new) in patches {
            bytes[*offset..offset + new.len()].copy_from_slice(new);
        }
        self.write("patched", bytes)
    }
}

fn refused(program: &Path, code: i32) -> String {
    let failure = inspect(program, std::env::var_os("PATH").as_deref(), For::Writes).unwrap_err();
    assert_eq!(failure.code(), code, "{failure}");
    let sentence = failure.to_string();
    assert!(
        sentence.starts_with(&program.display().to_string()) || sentence.contains("which runs")
    );
    sentence
}

fn accepted(program: &Path) {
    inspect(program, std::env::var_os("PATH").as_deref(), For::Writes).unwrap();
}

#[test]
fn a_dynamic_program_is_accepted_position_independent_or_not() {
    let fixtures = Fixtures::new();
    accepted(&fixtures.compile("pie", &["-pie", "-fPIE"]));
    accepted(&fixtures.compile("fixed", &["-no-pie"]));
}

#[test]
fn a_static_program_is_refused_with_what_works_instead() {
    let fixtures = Fixtures::new();
    for flags in [["-static"], ["-static-pie"]] {
        let sentence = refused(&fixtures.compile("program", &flags), Failure::OWN);
        assert!(sentence.contains("is statically linked"), "{sentence}");
        assert!(sentence.contains("TCP_NODELAY") && sentence.contains("quickack 1"), "{sentence}");
        assert!(sentence.contains("`sudo uncork tune --nodelay --pid PID`"), "{sentence}");
    }
}

#[test]
fn what_is_for_the_stack_is_not_advised_to_set_options() {
    let fixtures = Fixtures::new();
    let program = fixtures.compile("program", &["-static"]);
    let sentence = inspect(&program, None, For::Stack).unwrap_err().to_string();
    assert!(sentence.contains("is statically linked"), "{sentence}");
    assert!(sentence.contains("without --stack") && !sentence.contains("NODELAY"), "{sentence}");
}

#[test]
fn the_lines_of_dos_are_told() {
    let fixtures = Fixtures::new();
    for text in ["#!/bin/sh\r\nexit\r\n", "#!/usr/bin/env sh\r\n"] {
        let sentence = refused(&fixtures.write("dos", text), Failure::NOT_EXECUTABLE);
        assert!(sentence.contains("ends with a carriage return"), "{sentence}");
        assert!(sentence.contains("sed -i 's/\\r$//'") && !sentence.contains('\r'), "{sentence}");
    }
}

#[test]
fn a_go_program_is_refused_by_its_section_even_when_it_is_dynamic() {
    let fixtures = Fixtures::new();
    let section = "__attribute__((section(\".go.buildinfo\"))) int info = 1;\n";
    let program =
        fixtures.compile_source("go", &format!("{section}int main(void) {{ return 0; }}\n"), &[]);
    let sentence = refused(&program, Failure::OWN);
    assert!(
        sentence.contains("is a Go program") && sentence.contains("bufio.Writer"),
        "{sentence}"
    );
}

#[test]
fn a_go_program_without_section_headers_is_known_by_its_note() {
    let fixtures = Fixtures::new();
    let note = "__asm__(\".section .note.go.buildid,\\\"a\\\",@note\\n.balign 4\\n\
                .long 4, 4, 4\\n.asciz \\\"Go\\\\0\\\"\\n.long 7\\n.text\\n\");\n";
    let program =
        fixtures.compile_source("note", &format!("{note}int main(void) {{ return 0; }}\n"), &[]);
    // e_shoff, then e_shnum and e_shstrndx.
    let bare = fixtures.patched(&program, &[(0x28, &[0; 8]), (0x3c, &[0; 4])]);
    assert!(refused(&bare, Failure::OWN).contains("is a Go program"));
    let plain = fixtures.compile("plain", &[]);
    accepted(&fixtures.patched(&plain, &[(0x28, &[0; 8]), (0x3c, &[0; 4])]));
}

#[test]
fn another_architecture_is_named() {
    let fixtures = Fixtures::new();
    let program = fixtures.compile("program", &[]);
    let other: u16 = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    let arm = fixtures.patched(&program, &[(18, &other.to_ne_bytes())]);
    let name = if cfg!(target_arch = "aarch64") { "x86-64" } else { "64-bit ARM" };
    let sentence = refused(&arm, Failure::OWN);
    assert!(sentence.contains(&format!("is built for {name}")), "{sentence}");
    let small = fixtures.patched(&program, &[(4, &[1]), (18, &3_u16.to_ne_bytes())]);
    assert!(refused(&small, Failure::OWN).contains("32-bit x86"));
}

#[test]
fn another_c_library_is_named_and_a_missing_loader_cannot_be_executed() {
    let fixtures = Fixtures::new();
    let musl = fixtures.compile("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    let sentence = refused(&musl, Failure::OWN);
    assert!(sentence.contains("uses musl C library") || sentence.contains("musl"), "{sentence}");
    let own = elf::own().unwrap().loader;
    let absent = format!("-Wl,--dynamic-linker=/absent/{}", own.file_name().unwrap().display());
    let program = fixtures.compile("absent", &[&absent]);
    assert!(refused(&program, Failure::NOT_EXECUTABLE).contains("which is missing"));
}

#[test]
fn the_loader_itself_heeds_ld_preload() {
    accepted(&elf::own().unwrap().loader);
}

#[test]
fn files_that_are_no_programs_cannot_be_executed() {
    let fixtures = Fixtures::new();
    let object = fixtures.compile("object", &["-c"]);
    assert!(refused(&object, Failure::NOT_EXECUTABLE).contains("no program"));
    let cut_off = fixtures.write("cut-off", &fs::read(&object).unwrap()[..30]);
    assert!(refused(&cut_off, Failure::NOT_EXECUTABLE).contains("damaged"));
}

#[test]
fn a_script_is_judged_by_its_interpreter_and_env_is_followed() {
    let fixtures = Fixtures::new();
    let program = fixtures.compile("static", &["-static"]);
    let script = fixtures.write("script", format!("#!{} -x\n", program.display()));
    let second = fixtures.write("second", format!("#! {}\n", script.display()));
    let sentence = refused(&second, Failure::OWN);
    let expected =
        format!("{}, which runs {}, is statically linked", program.display(), second.display());
    assert!(sentence.starts_with(&expected), "{sentence}");

    let through_env = fixtures.write("through-env", "#!/usr/bin/env -S static -x\n");
    let path = fixtures.0.path().as_os_str();
    let failure = inspect(&through_env, Some(path), For::Writes).unwrap_err();
    assert!(failure.to_string().contains("is statically linked"), "{failure}");

    accepted(&fixtures.write("shell", "#!/bin/sh\n"));
    accepted(&fixtures.write("env-shell", "#!/usr/bin/env sh\n"));
    accepted(&fixtures.write("no-line", "echo hello\n"));
    accepted(&fixtures.write("empty", ""));
}

#[test]
fn interpreters_that_are_missing_or_go_round_in_a_circle_cannot_be_executed() {
    let fixtures = Fixtures::new();
    for line in ["#!/absent/interpreter\n", "#!/usr/bin/env absent-interpreter\n"] {
        let script = fixtures.write("script", line);
        let sentence = refused(&script, Failure::NOT_EXECUTABLE);
        assert!(sentence.contains("absent") && sentence.contains("missing"), "{sentence}");
    }
    let circle = fixtures.path("circle");
    fixtures.write("circle", format!("#!{}\n", circle.display()));
    assert!(refused(&circle, Failure::NOT_EXECUTABLE).contains("too many interpreters"));
}

#[test]
fn a_script_that_clears_its_environment_is_refused() {
    let fixtures = Fixtures::new();
    let script = fixtures.write("script", "#!/usr/bin/env -S -i sh\n");
    assert!(refused(&script, Failure::OWN).contains("clears the environment"));
}

#[test]
fn set_user_id_counts_only_if_it_gains_anything() {
    let fixtures = Fixtures::new();
    let program = fixtures.compile("program", &[]);
    let mode = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
    // It is the caller's own: nothing is gained, and the loader stays out of secure mode.
    mode(0o6755);
    accepted(&program);
    let gains = if nix::unistd::geteuid().is_root() {
        chown(&program, Some(65534), None).unwrap();
        // chown has cleared the bit.
        mode(0o4755);
        program.clone()
    } else {
        PathBuf::from("/usr/bin/passwd")
    };
    let sentence = refused(&gains, Failure::OWN);
    assert!(sentence.contains("is set-user-ID") && sentence.contains("sudo -u"), "{sentence}");
}

#[test]
fn set_group_id_counts_unless_it_means_locking() {
    if !nix::unistd::geteuid().is_root() {
        let name = "set_group_id_counts_unless_it_means_locking";
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{name} needs root");
        eprintln!("skipped: {name} needs root");
        return;
    }
    let fixtures = Fixtures::new();
    let program = fixtures.compile("program", &[]);
    chown(&program, None, Some(65534)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)).unwrap();
    let sentence = refused(&program, Failure::OWN);
    assert!(sentence.contains("is set-group-ID") && sentence.contains("sg "), "{sentence}");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o2745)).unwrap();
    accepted(&program);
}
