//! A small HTTP/1.1 client that measures and checks, and never runs under the library.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const LIMIT: Duration = Duration::from_secs(20);

/// One connection.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
}

/// An answer, its body reduced to what is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Length of the body.
    pub bytes: usize,
    /// Checksum of the body.
    pub sum: u64,
}

impl Answer {
    /// Returns an answer with this body.
    pub fn of(status: u16, body: &[u8]) -> Self {
        let mut seen = Body::new();
        seen.add(body);
        Self { status, bytes: seen.bytes, sum: seen.sum }
    }
}

impl Connection {
    /// Connects to a server on this machine.
    pub fn open(port: u16) -> Result<Self> {
        Self::over(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)
    }

    /// Uses an established connection.
    pub fn over(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Returns the TCP connection.
    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Sends one GET on the kept-alive connection.
    pub fn get(&mut self, path: &str) -> Result<Answer> {
        self.request(path, "")?;
        self.answer().with_context(|| format!("GET {path}"))
    }

    /// Returns the median time of `count` GETs of the same page.
    pub fn median_get(&mut self, path: &str, count: usize) -> Result<Duration> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            let answer = self.get(path)?;
            times.push(start.elapsed());
            ensure!(answer.status == 200, "status {}", answer.status);
        }
        times.sort_unstable();
        Ok(times[count / 2])
    }

    /// Sends a GET, with additional header lines (each with its CRLF).
    pub fn request(&mut self, path: &str, headers: &str) -> Result<()> {
        let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        self.reader.get_mut().write_all(text.as_bytes())?;
        Ok(())
    }

    /// Reads one answer.
    pub fn answer(&mut self) -> Result<Answer> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.context("no status line")?;
        let (mut length, mut chunked) = (None, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                None if line.is_empty() => break,
                Some(("content-length", value)) => length = Some(value.trim().parse()?),
                Some(("transfer-encoding", value)) => chunked = value.trim() == "chunked",
                _ => {}
            }
        }
        let mut body = Body::new();
        match length {
            _ if chunked => self.chunks(&mut body)?,
            Some(length) => self.take(length, &mut body)?,
            None => bail!("neither a length nor chunks"),
        }
        Ok(Answer { status, bytes: body.bytes, sum: body.sum })
    }

    /// Returns whether the server has closed the connection, with nothing more to read.
    pub fn at_end(&mut self) -> Result<bool> {
        Ok(self.reader.fill_buf()?.is_empty())
    }

    fn chunks(&mut self, body: &mut Body) -> Result<()> {
        loop {
            let size = usize::from_str_radix(self.line()?.trim(), 16).context("chunk size")?;
            self.take(size, body)?;
            ensure!(self.line()?.is_empty(), "a chunk longer than its size");
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn take(&mut self, length: usize, body: &mut Body) -> Result<()> {
        let mut left = length;
        let mut buffer = vec![0; 65_536];
        while left > 0 {
            let wanted = left.min(buffer.len());
            let got = match self.reader.read(&mut buffer[..wanted]) {
                // After the machine was suspended (signal(7), about sockets with a timeout).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            ensure!(got > 0, "the body ended {left} bytes early");
            body.add(&buffer[..got]);
            left -= got;
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            let why = "the server closed the connection";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why).into());
        }
        Ok(line.trim_end().to_owned())
    }
}

struct Body {
    bytes: usize,
    sum: u64,
}

impl Body {
    const fn new() -> Self {
        Self { bytes: 0, sum: 0xcbf2_9ce4_8422_2325 }
    }

    /// Adds to the sum by FNV-1a: any change of a byte or of the order changes it.
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        for byte in bytes {
            self.sum = (self.sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
