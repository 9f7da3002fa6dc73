//! The programs that communicate: our small ones in several languages, and third-party servers.
//!
//! A program is written as one line of words. The first says what it is:
//!
//! | word | is |
//! |---|---|
//! | `py:NAME`, `perl:NAME` | a script of `programs/` |
//! | `c:NAME`, `go:NAME` | a program of `programs/`, built statically |
//! | `nginx:FLAVOUR` | nginx with one of the configurations below |
//! | `redis`, `postgres` | a server with nothing in it |
//! | `curl COUNT PATH` | curl, asking for the same page on one connection |
//! | anything else | a program on the PATH |
//!
//! `HOST` and `PORT` in a line stand for the server's.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use uncork_netns::{Namespace, run};

const SOURCES: [(&str, &str); 11] = [
    ("exchange.py", include_str!("../programs/exchange.py")),
    ("exchange.pl", include_str!("../programs/exchange.pl")),
    ("exchange.c", include_str!("../programs/exchange.c")),
    ("exchange.go", include_str!("../programs/exchange.go")),
    ("web.go", include_str!("../programs/web.go")),
    ("http_server.py", include_str!("../programs/http_server.py")),
    ("http_client.py", include_str!("../programs/http_client.py")),
    ("push.py", include_str!("../programs/push.py")),
    ("ends.py", include_str!("../programs/ends.py")),
    ("bulk.py", include_str!("../programs/bulk.py")),
    ("redis_client.py", include_str!("../programs/redis_client.py")),
];
const POSTGRES_CLIENT: &str = include_str!("../programs/postgres_client.py");

/// Lengths of the pages that nginx serves, in octets; each is at `/LENGTH`.
const PAGES: [usize; 4] = [600, 3000, 20_000, 100_000];

/// The directory in which programs are built and run.
#[derive(Debug)]
pub struct Toolbox {
    directory: PathBuf,
}

impl Toolbox {
    /// Writes the sources into `directory`, which must exist.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn new(directory: &Path) -> Result<Self> {
        for (name, text) in SOURCES.into_iter().chain([("postgres_client.py", POSTGRES_CLIENT)]) {
            fs::write(directory.join(name), text)
                .with_context(|| format!("cannot write into {}", directory.display()))?;
        }
        let pages = directory.join("pages");
        fs::create_dir(&pages)?;
        for length in PAGES {
            fs::write(pages.join(length.to_string()), "x".repeat(length))?;
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// Returns the command that runs `line` in `namespace`.
    ///
    /// # Errors
    /// If a program has to be built first and cannot be, or is not installed.
    pub fn command(
        &self,
        namespace: &Namespace,
        line: &str,
        host: &str,
        port: u16,
    ) -> Result<Command> {
        let port = port.to_string();
        let mut words = line.split_whitespace();
        let program = words.next().context("an empty command line")?;
        let rest: Vec<String> =
            words.map(|word| word.replace("HOST", host).replace("PORT", &port)).collect();
        let mut command = match program.split_once(':') {
            Some(("py", name)) => {
                let mut command = namespace.command("/usr/bin/python3");
                command.arg(self.directory.join(format!("{name}.py")));
                command
            }
            Some(("perl", name)) => {
                let mut command = namespace.command("perl");
                command.arg(self.directory.join(format!("{name}.pl")));
                command
            }
            Some(("c" | "go", _)) => namespace.command(&self.built(program)?),
            Some(("nginx", flavour)) => self.nginx(namespace, flavour, host, &port)?,
            _ if program == "redis" => {
                let mut command = namespace.command("redis-server");
                command.args(["--bind", host, "--port", &port, "--save", "", "--daemonize", "no"]);
                command.args(["--protected-mode", "no"]);
                command
            }
            _ if program == "postgres" => self.postgres(namespace, host, &port)?,
            _ if program == "curl" => return self.curl(namespace, &rest, host, &port),
            _ => namespace.command(program),
        };
        command.args(rest).current_dir(&self.directory);
        Ok(command)
    }

    fn built(&self, program: &str) -> Result<String> {
        let (language, name) = program.split_once(':').unwrap_or_default();
        let source = self.directory.join(format!("{name}.{language}"));
        let output = self.directory.join(format!("{name}-{language}"));
        if !output.exists() {
            let mut build;
            if language == "c" {
                build = Command::new("cc");
                build.args(["-O2", "-static", "-w", "-o"]).arg(&output).arg(&source);
            } else {
                build = Command::new("go");
                build.args(["build", "-o"]).arg(&output).arg(&source);
                build.env("CGO_ENABLED", "0").env("GO111MODULE", "off");
                build.env("GOCACHE", self.directory.join("go")).env("GOFLAGS", "");
            }
            run(&mut build)?;
        }
        Ok(output.display().to_string())
    }

    fn nginx(&self, ns: &Namespace, flavour: &str, host: &str, port: &str) -> Result<Command> {
        let nodelay = if flavour.ends_with("-nagle") { "off" } else { "on" };
        let location = match flavour.trim_end_matches("-nagle") {
            "static" => format!("root {};", self.directory.join("pages").display()),
            // Whatever the upstream program writes is passed on at once.
            "proxy" => "proxy_pass http://127.0.0.1:7999; proxy_buffering off; \
                        proxy_http_version 1.1; proxy_set_header Connection \"\";"
                .to_owned(),
            _ => bail!("nginx has no flavour {flavour}"),
        };
        let listen =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let place = self.directory.join(format!("nginx-{flavour}-{port}"));
        fs::create_dir_all(&place)?;
        let text = format!(
            "user root; worker_processes 1; daemon off; pid {place}/pid; error_log stderr;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; keepalive_requests 100000; tcp_nodelay {nodelay};\n\
             sendfile on; client_body_temp_path {place}/a; proxy_temp_path {place}/b;\n\
             fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;\n\
             server {{ listen {listen}; location / {{ {location} }} }} }}\n",
            place = place.display()
        );
        let path = place.join("nginx.conf");
        fs::write(&path, text)?;
        let mut command = ns.command("nginx");
        command.arg("-c").arg(path).args(["-e", "stderr"]);
        Ok(command)
    }

    /// Runs PostgreSQL, whose programs Debian keeps out of the PATH, and which refuses to run as root.
    fn postgres(&self, ns: &Namespace, host: &str, port: &str) -> Result<Command> {
        let installed = fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is missing")?;
        let bin = installed
            .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
            .find(|bin| bin.join("initdb").exists())
            .context("PostgreSQL is missing")?;
        let data = self.directory.join("postgres");
        let as_postgres = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
        if !data.exists() {
            fs::create_dir(&data)?;
            run(Command::new("chown").arg("postgres").arg(&data))?;
            run(Command::new("setpriv")
                .args(as_postgres)
                .arg(bin.join("initdb"))
                .args(["-A", "trust", "-U", "postgres", "--no-sync", "-D"])
                .arg(&data))?;
            let rules = "host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n";
            fs::write(data.join("pg_hba.conf"), rules)?;
        }
        let mut command = ns.command("setpriv");
        command.args(as_postgres).arg(bin.join("postgres")).arg("-D").arg(&data);
        command.args(["-h", host, "-p", port, "-k", "", "-c", "fsync=off"]);
        Ok(command)
    }

    fn curl(&self, ns: &Namespace, rest: &[String], host: &str, port: &str) -> Result<Command> {
        let [count, path] = rest else { bail!("curl wants a count and a path") };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut text =
            String::from("silent\nfail\nwrite-out = \"%{time_total} %{local_port}\\n\"\n");
        for _ in 0..count.parse().context("curl's count")? {
            writeln!(text, "url = \"http://{host}:{port}{path}\"\noutput = \"/dev/null\"")?;
        }
        let file = self.directory.join("curl.conf");
        fs::write(&file, text)?;
        let mut command = ns.command("curl");
        command.arg("-K").arg(file);
        Ok(command)
    }
}

/// The measurements that a client reports.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
pub struct Timed {
    /// Its local ports, one for each connection.
    pub ports: Vec<u16>,
    /// How long each request took.
    pub each_ms: Vec<f64>,
}

impl Timed {
    /// Parses what a client has printed: our programs' JSON, or curl's lines. `None` for others.
    ///
    /// # Errors
    /// If it looks like one of them and is not.
    pub fn read(line: &str, printed: &str) -> Result<Option<Self>> {
        if line.starts_with("curl ") {
            let mut timed = Self::default();
            for line in printed.lines() {
                let (seconds, port) =
                    line.split_once(' ').context("curl printed a strange line")?;
                timed.each_ms.push(seconds.parse::<f64>()? * 1000.0);
                let port = port.parse()?;
                if !timed.ports.contains(&port) {
                    timed.ports.push(port);
                }
            }
            return Ok(Some(timed));
        }
        if !printed.starts_with("{\"") {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(printed).context("the client printed strange JSON")?))
    }

    /// Returns the sum of all requests' times.
    #[must_use]
    pub fn total_ms(&self) -> f64 {
        self.each_ms.iter().sum()
    }
}
