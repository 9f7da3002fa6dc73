//! `tokio_echo one|many serve|ask ADDRESS`: an echo server, and clients that ask it, all at once, on tokio's runtime with
//! one thread or two. A client says how many answers it has received.
#![forbid(unsafe_code)]

use std::env;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

const CLIENTS: u8 = 10;
const QUESTIONS: u8 = 100;
/// How long a client pauses now and then, so that timers end waits, too.
const PAUSE: Duration = Duration::from_millis(2);

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [threads, what, address] = &arguments[..] else { bail!("one|many serve|ask ADDRESS") };
    let mut builder = match &threads[..] {
        "one" => Builder::new_current_thread(),
        "many" => Builder::new_multi_thread(),
        _ => bail!("one thread or many"),
    };
    let runtime = builder.worker_threads(2).enable_all().build()?;
    match &what[..] {
        "serve" => runtime.block_on(serve(address)),
        "ask" => runtime.block_on(ask(address)),
        _ => bail!("serve or ask"),
    }
}

async fn serve(address: &str) -> Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(echo(stream));
    }
}

async fn echo(mut stream: TcpStream) -> Result<()> {
    let (mut reads, mut writes) = stream.split();
    tokio::io::copy(&mut reads, &mut writes).await?;
    Ok(writes.shutdown().await?)
}

async fn ask(address: &str) -> Result<()> {
    let mut all = JoinSet::new();
    for client in 0..CLIENTS {
        all.spawn(talk(address.to_owned(), client));
    }
    let mut answers = 0;
    while let Some(talked) = all.join_next().await {
        answers += talked??;
    }
    println!("{answers} answers");
    Ok(())
}

async fn talk(address: String, client: u8) -> Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    for question in 0..QUESTIONS {
        let said = [client, question, 7];
        stream.write_all(&said).await?;
        let mut heard = [0; 3];
        stream.read_exact(&mut heard).await.context("an answer")?;
        ensure!(heard == said, "{heard:?}, not {said:?}");
        if question % 20 == client {
            sleep(PAUSE).await;
        }
    }
    stream.shutdown().await?;
    ensure!(stream.read(&mut [0]).await? == 0, "more than was asked for");
    Ok(QUESTIONS.into())
}
