//! `uncork run`: what the program receives, and what comes back from it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{
    self, copy_executable, executable, needs_root, output, refused, run, stderr, stdout, uncork,
};

#[test]
fn uncork_turns_into_the_program_and_no_process_of_it_remains() {
    let mut command = run(&["--", "sh", "-c", "echo $$ $PPID"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    let own = std::process::id();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{id} {own}\n"));
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let words = ["--hold", "--", "-x", "", "a b"];
    let mut command = run(&["sh", "-c", "printf '<%s>' \"$@\"", "sh"]);
    assert_eq!(stdout(&output(command.args(words))), "<--hold><--><-x><><a b>");
    let seen = stdout(&output(&mut run(&["--hold", "user", "cat", "/proc/self/cmdline"])));
    assert_eq!(seen, "cat\0/proc/self/cmdline\0");
}

/// Returns the UNCORK_* and LD_PRELOAD variables that a program sees.
fn seen(command: &mut Command) -> Vec<String> {
    let output = output(command);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let ours = |line: &&str| {
        (line.starts_with("UNCORK_") && !line.starts_with("UNCORK_LIBRARY"))
            || line.starts_with("LD_PRELOAD")
    };
    let mut lines: Vec<_> = text.lines().filter(ours).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn options_become_variables_and_those_not_given_leave_the_variables() {
    let preload = format!("LD_PRELOAD={}", common::library().display());
    assert_eq!(seen(&mut run(&["env"])), [preload.as_str()]);

    let options = ["--hold", "user", "--scope", "nodelay", "--bound", "2ms", "--spin", "50us"];
    let mut all = run(&options);
    assert_eq!(
        seen(all.args(["--debug", "0", "--", "env"])),
        [
            preload.as_str(),
            "UNCORK_BOUND=2ms",
            "UNCORK_DEBUG=0",
            "UNCORK_HOLD=user",
            "UNCORK_SCOPE=nodelay",
            "UNCORK_SPIN=50us"
        ]
    );

    let mut mixed = run(&["--hold", "off", "env"]);
    mixed.env("UNCORK_HOLD", "user").env("UNCORK_BOUND", "3ms").env("UNCORK_STATS", "stderr");
    assert_eq!(
        seen(&mut mixed),
        [preload.as_str(), "UNCORK_BOUND=3ms", "UNCORK_HOLD=off", "UNCORK_STATS=stderr"]
    );
}

#[test]
fn the_library_goes_before_what_is_preloaded_already() {
    let ours = common::library().display();
    let expected = [format!("LD_PRELOAD={ours}:libm.so.6")];
    assert_eq!(seen(run(&["env"]).env("LD_PRELOAD", "libm.so.6")), expected);
    assert_eq!(seen(run(&["env"]).env("LD_PRELOAD", format!("libm.so.6 {ours}"))), expected);
}

#[test]
fn a_variable_that_is_not_understood_is_told_and_the_program_runs() {
    let output = output(run(&["true"]).env("UNCORK_BOUND", "5"));
    assert!(output.status.success());
    assert!(stderr(&output).starts_with("uncork: UNCORK_BOUND is ignored: "));
}

#[test]
fn trying_the_library_out_shows_nothing_of_it() {
    let output = output(run(&["true"]).env("UNCORK_DEBUG", "1"));
    assert_eq!(stderr(&output), "library in true\n");
}

#[test]
fn the_exit_status_is_the_program_s() {
    for code in [0, 1, 3, 125, 126, 127, 255] {
        let status = run(&["sh", "-c", &format!("exit {code}")]).status().unwrap();
        assert_eq!(status.code(), Some(code));
    }
    let status = run(&["sh", "-c", "kill -USR1 $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(nix::libc::SIGUSR1));
}

#[test]
fn a_command_that_is_missing_or_cannot_be_executed_has_its_code() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    executable(&plain, "#!/bin/sh\n");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for stats in [&[][..], &["--stats"]] {
        let run = |name: &str| {
            let mut command = run(stats);
            command.arg(name);
            command
        };
        refused(&mut run("no-such-command-here"), 127, "not found in PATH");
        refused(&mut run("./no/such/file"), 127, "no such file");
        refused(&mut run("/"), 126, "is a directory");
        refused(&mut run(plain.to_str().unwrap()), 126, "cannot be executed");
        refused(run("plain").env("PATH", directory.path()), 126, "cannot be executed");
    }
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(run(&["plain"]).env("PATH", directory.path()).status().unwrap().success());
    // An empty element of PATH is the current directory.
    let mut here = run(&["plain"]);
    here.env("PATH", "/nowhere:").current_dir(directory.path());
    assert!(here.status().unwrap().success());
}

#[test]
fn a_program_that_cannot_be_helped_is_refused_before_it_starts() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("static");
    common::compile(
        "#include <stdio.h>\nint main(void) { puts(\"ran\"); }\n",
        &program,
        &["-static"],
    );
    refused(run(&[]).arg(&program), 125, "is statically linked");
}

#[test]
fn a_file_without_a_first_line_is_run_by_the_shell_as_execvp_does() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    executable(&script, "echo \"$0 $1\"\nexit 7\n");
    for options in [&[][..], &["--stats=/dev/null"]] {
        let output = output(run(options).arg(&script).arg("one"));
        assert_eq!(stdout(&output), format!("{} one\n", script.display()));
        assert_eq!(output.status.code(), Some(7));
    }
}

#[test]
fn a_wrong_command_line_is_a_failure_of_uncork_not_of_the_program() {
    for arguments in [
        &["run"][..],
        &["run", "--hold", "maybe", "true"],
        &["run", "--bound", "1", "true"],
        &["run", "--no-such-option", "true"],
    ] {
        let output = output(uncork().args(arguments));
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(!stderr(&output).is_empty());
    }
    for arguments in [&["walk"][..], &["status"], &["status", "0"], &["status", "one"], &[]] {
        assert_eq!(uncork().args(arguments).output().unwrap().status.code(), Some(2));
    }
}

#[test]
fn what_an_instance_has_is_not_said_to_the_program_that_attaches() {
    let instance = |more: &[&str], what: &str| {
        let command = ["--stack=instance"].iter().chain(more).chain(&["--", "echo", "ran"]);
        refused(&mut run(&command.copied().collect::<Vec<_>>()), 125, what);
    };
    instance(&["--stay"], "an instance leaves nothing to the kernel, so leave it out");
    instance(&["--small-queue", "65536"], "--small-queue is said to uncork stack start");
    instance(&["--dev", "eth0"], "are said to uncork stack start, which has the devices");
    instance(&["--guardian", "web"], "--guardian is for a stack on the program's own threads");
    refused(&mut run(&["--stack", "--instance", "web", "echo", "ran"]), 125, "--instance names");
}

#[test]
fn help_and_version_go_to_standard_output_and_a_closed_pipe_is_no_error() {
    for arguments in [&["--help"][..], &["run", "--help"], &["status", "-h"], &["--version"]] {
        let output = output(uncork().args(arguments));
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(stdout(&output).contains("uncork"));
        let mut closed = uncork();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert!(closed.args(arguments).stdout(writer).status().unwrap().success());
    }
}

/// Prints what a program can see of how it was started.
const STARTED_HOW: &str = "grep -E '^(Sig(Ign|Blk)|Threads)' /proc/self/status; ls /proc/self/fd; echo $0 $# $-; \
     umask; ulimit -a; pwd";

#[test]
fn the_program_starts_as_it_would_without_uncork() {
    // Signals that the caller ignores stay ignored, and descriptors that it closed stay closed.
    for prelude in ["", "trap '' PIPE INT USR1;", "exec 0<&-;"] {
        let under = |uncork: &str| {
            let script =
                format!("{prelude} {uncork} sh -c '{}'", STARTED_HOW.replace('\'', "'\\''"));
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).env("UNCORK_LIBRARY", common::library());
            let output = output(command.stdin(Stdio::null()));
            assert!(output.status.success(), "{}", stderr(&output));
            stdout(&output)
        };
        let plain = under("");
        assert_eq!(plain, under(&format!("{} run --", common::UNCORK)), "{prelude}");
        let stats = format!("{} run --stats=/dev/null --", common::UNCORK);
        assert_eq!(plain, under(&stats), "{prelude}");
    }
}

#[test]
fn a_library_that_the_loader_would_not_open_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let here = |name: &str| directory.path().join(name);
    let library = common::library();
    fs::create_dir(here("a b")).unwrap();
    fs::copy(library, here("a b/libuncork.so")).unwrap();
    fs::write(here("text.so"), "text").unwrap();
    for (path, what) in [
        (here("absent.so"), "No such file"),
        (here("a b/libuncork.so"), "a space"),
        (here("text.so"), "not an ELF file"),
        (directory.path().to_owned(), "directory"),
        ("libm.so.6".into(), "No such file"),
    ] {
        refused(run(&["true"]).env("UNCORK_LIBRARY", &path), 125, what);
        refused(uncork().arg("library").env("UNCORK_LIBRARY", &path), 125, what);
    }
    // A dependency is missing: the reason is in the loader's own words.
    let needy = here("needy.so");
    let source = "extern int absent(void); int uncork_published; int f(void) { return absent(); }";
    common::compile("int absent(void) { return 1; }", &here("libabsent.so"), &["-shared", "-fPIC"]);
    let search = format!("-L{}", directory.path().display());
    let flags = ["-shared", "-fPIC", &search, "-Wl,--no-as-needed", "-labsent"];
    fs::write(here("needy.c"), source).unwrap();
    let built = Command::new("cc").arg(here("needy.c")).args(flags).arg("-o").arg(&needy).status();
    assert!(built.unwrap().success());
    let reason = "the loader says: libabsent.so: cannot open shared object file";
    refused(run(&["true"]).env("UNCORK_LIBRARY", &needy), 125, reason);
    // A library, but not ours.
    let other = here("other.so");
    common::compile("int other;", &other, &["-shared", "-fPIC"]);
    refused(run(&["true"]).env("UNCORK_LIBRARY", &other), 125, "not a build of libuncork.so");
}

#[test]
fn a_relative_library_is_found_wherever_the_program_goes() {
    let library = common::library();
    let mut command = run(&["sh", "-c", "cd / && exec env"]);
    command.current_dir(library.parent().unwrap()).env("UNCORK_LIBRARY", "libuncork.so");
    assert_eq!(seen(&mut command), [format!("LD_PRELOAD={}", library.display())]);
}

#[test]
fn the_library_is_found_beside_uncork_or_in_lib() {
    let root = tempfile::tempdir().unwrap();
    let bin = root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let copy = bin.join("uncork");
    copy_executable(Path::new(common::UNCORK), &copy);
    let printed = || {
        let output = output(Command::new(&copy).arg("library").env_remove("UNCORK_LIBRARY"));
        output.status.success().then(|| stdout(&output)).ok_or_else(|| stderr(&output))
    };
    let absent = printed().unwrap_err();
    assert!(absent.contains("UNCORK_LIBRARY") && absent.contains("make"), "{absent}");
    for place in ["lib", "lib/uncork", "bin"] {
        fs::create_dir_all(root.path().join(place)).unwrap();
        let library = root.path().join(place).join("libuncork.so");
        fs::copy(common::library(), &library).unwrap();
        assert_eq!(printed().unwrap(), format!("{}\n", library.display()));
    }
}

#[test]
fn a_library_on_a_noexec_mount_is_refused() {
    if !needs_root("a_library_on_a_noexec_mount_is_refused") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o noexec none \"$1\" && cp \"$2\" \"$1\" && \
                  UNCORK_LIBRARY=\"$1/libuncork.so\" \"$3\" run true";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(directory.path());
    command.arg(common::library()).arg(common::UNCORK);
    refused(&mut command, 125, "noexec");
}

#[test]
fn a_program_with_file_capabilities_is_refused_for_a_user_and_runs_for_root() {
    if !needs_root("a_program_with_file_capabilities_is_refused_for_a_user_and_runs_for_root") {
        return;
    }
    let (directory, mut as_user) = common::uncork_of_nobody();
    let program = directory.path().join("program");
    copy_executable(Path::new("/bin/true"), &program);
    let set = Command::new("setcap").arg("cap_net_raw=ep").arg(&program).status().unwrap();
    assert!(set.success());
    assert!(run(&[]).arg(&program).status().unwrap().success());
    as_user.arg("run").arg(&program);
    refused(&mut as_user, 125, "has file capabilities");
}

#[test]
fn set_user_id_that_the_kernel_will_not_heed_is_no_reason_to_refuse() {
    if !needs_root("set_user_id_that_the_kernel_will_not_heed_is_no_reason_to_refuse") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o \"$4\" none \"$1\" && cp /bin/true \"$1/program\" && \
                  chown 65534 \"$1/program\" && chmod u+s \"$1/program\" && \
                  UNCORK_LIBRARY=\"$2\" exec $5 \"$3\" run \"$1/program\"";
    let run = |mount: &str, prefix: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(directory.path());
        command.arg(common::library()).args([common::UNCORK, mount, prefix]);
        command
    };
    refused(&mut run("suid", ""), 125, "is set-user-ID");
    assert!(run("nosuid", "").status().unwrap().success());
    assert!(run("suid", "setpriv --no-new-privs").status().unwrap().success());
}

#[test]
fn a_failure_that_nobody_reads_keeps_its_code() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = run(&["no-such-command-here"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(127));
}

#[test]
fn a_directory_of_path_that_may_not_be_searched_holds_nothing() {
    if !needs_root("a_directory_of_path_that_may_not_be_searched_holds_nothing") {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    let (_directory, mut as_user) = common::uncork_of_nobody();
    let path = format!("{}:/usr/bin", closed.path().display());
    as_user.args(["run", "no-such-command-here"]).env("PATH", path);
    refused(&mut as_user, 127, "not found in PATH");
}
