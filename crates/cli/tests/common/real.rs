//! The library itself, for what a stand-in cannot show, and a program that writes to a socket.

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Writes five bytes one by one to 127.0.0.1:argv[1] and then does what argv[2] says.
const WRITER: &str = r#"
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (!strcmp(argv[2], "daemon") && fork())
        return 0;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to))
        return 1;
    for (int i = 0; i < 5; i++)
        write(fd, "x", 1);
    /* As somebody else would: who stops himself by kill(2) lets go of what is held before. */
    if (!strcmp(argv[2], "stop")) {
        long number = SYS_kill;
        __asm__ volatile("syscall" : "+a"(number) : "D"((long)getpid()), "S"((long)SIGSTOP) : "rcx", "r11", "memory");
    }
    for (;;)
        pause();
}
"#;

/// Returns the libuncork.so that cargo builds beside the uncork under test.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built().join("libuncork.so"))
}

/// Has cargo build the library and the published client and server beside the uncork under test, in
/// the same profile; returns their directory.
///
/// It builds all packages together, like `cargo test --workspace`: for one package alone,
/// dependencies have fewer features and would be compiled once more.
pub(crate) fn built() -> &'static Path {
    let directory = Path::new(crate::common::UNCORK).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--lib"]);
    build.args(["--bin", "tcp_nodelay_client", "--bin", "tcp_nodelay_server", "--target-dir"]);
    build.arg(directory.parent().unwrap());
    // cargo calls the directory of profile dev debug, and that of every other profile by its name.
    let profile = directory.file_name().unwrap();
    if profile != "debug" {
        build.arg("--profile").arg(profile);
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert!(build.arg("--manifest-path").arg(manifest).status().unwrap().success());
    directory
}

/// A running program that has written five bytes, and the other end of its connection.
pub(crate) struct Writer {
    pub(crate) child: Child,
    pub(crate) peer: TcpStream,
    pub(crate) address: String,
    _directory: tempfile::TempDir,
}

impl Writer {
    /// Starts the writer by `launch`, an uncork command line that lacks only the program.
    pub(crate) fn start(launch: &mut Command, how: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join("writer");
        crate::common::compile(WRITER, &program, &["-w"]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let launch = launch.arg(&program).arg(address.port().to_string()).arg(how);
        let child = launch.stderr(Stdio::piped()).spawn().unwrap();
        let (peer, _) = listener.accept().unwrap();
        Self { child, peer, address: address.to_string(), _directory: directory }
    }

    /// Waits until the five bytes have arrived.
    pub(crate) fn arrive(&mut self) {
        self.peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        self.peer.read_exact(&mut [0; 5]).unwrap();
    }
}

/// Waits until `happened` returns true.
pub(crate) fn until(mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns whether a process is stopped.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().starts_with('T')
}
