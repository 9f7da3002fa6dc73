//! Scenarios without a fault.

use super::{Scenario, Wire};

pub(super) fn all() -> Vec<Scenario> {
    let mut all = other_peoples();
    all.extend(ours());
    all
}

fn other_peoples() -> Vec<Scenario> {
    let bench = "redis-benchmark -h HOST -p PORT -q -t get,set";
    let pgbench = "pgbench -h HOST -p PORT -U postgres -n -c 1 postgres";
    vec![
        Scenario::new(
            "healthy-nginx-curl-0.05ms",
            "small pages",
            Wire::veth(),
            "nginx:static",
            "curl 40 /600",
        ),
        Scenario::new(
            "healthy-nginx-curl-5ms",
            "pages of 20 kB",
            Wire::rtt(5.0),
            "nginx:static",
            "curl 15 /20000",
        )
        .both_ends(),
        Scenario::new(
            "healthy-nginx-curl-80ms",
            "pages of 100 kB over a long way: slow start and nothing else",
            Wire::rtt(80.0),
            "nginx:static",
            "curl 6 /100000",
        )
        .at_server(),
        Scenario::new(
            "healthy-nginx-wrk-1ms",
            "four connections that never rest",
            Wire::rtt(1.0),
            "nginx:static",
            "timeout -s INT 0.12 wrk -t1 -c4 -d10s http://HOST:PORT/600",
        ),
        Scenario::new(
            "healthy-redis-0.05ms",
            "redis-benchmark, one client at a time",
            Wire::loopback(),
            "redis",
            &format!("{bench} -c 1 -n 60"),
        ),
        Scenario::new(
            "healthy-redis-pipeline-2ms",
            "redis-benchmark with pipelines of 16",
            Wire::rtt(2.0),
            "redis",
            &format!("{bench} -c 2 -n 400 -P 16"),
        ),
        Scenario::new(
            "healthy-pgbench-0.05ms",
            "pgbench, prepared statements",
            Wire::veth(),
            "postgres",
            &format!("{pgbench} -t 20 -M prepared -f select.sql"),
        ),
        Scenario::new(
            "healthy-pgbench-10ms",
            "pgbench, simple queries",
            Wire::rtt(10.0),
            "postgres",
            &format!("{pgbench} -t 20 -f select.sql"),
        )
        .at_server(),
        Scenario::new(
            "healthy-go-web-20ms",
            "Go's net/http",
            Wire::rtt(20.0),
            "go:web -listen HOST:PORT",
            "curl 20 /",
        ),
        Scenario::new(
            "healthy-python-http-40ms",
            "http.server with TCP_NODELAY",
            Wire::rtt(40.0),
            "py:http_server --host HOST --port PORT --nodelay",
            "py:http_client --host HOST --port PORT",
        ),
    ]
}

fn ours() -> Vec<Scenario> {
    let one = "--host HOST --port PORT --read 100 --write 500";
    let ask = "--host HOST --port PORT --read 500 --write 100";
    vec![
        Scenario::new(
            "healthy-one-write-80ms",
            "one write a message, Nagle on: nothing to hold",
            Wire::rtt(80.0),
            &format!("py:exchange server {one}"),
            &format!("c:exchange client {ask}"),
        )
        .both_ends(),
        Scenario::new(
            "healthy-client-pauses-5ms",
            "the client rests 100 ms between its requests: nobody waits",
            Wire::rtt(5.0),
            &format!("perl:exchange server {one}"),
            &format!("py:exchange client {ask} --gap 100"),
        ),
        Scenario::new(
            "healthy-typing-40ms",
            "somebody types, each key is echoed: tiny, but each is a message of its own",
            Wire::rtt(40.0),
            "c:exchange server --host HOST --port PORT --read 1 --write 40 --nodelay",
            "py:exchange client --host HOST --port PORT --read 40 --write 1 --nodelay --gap 90 --count 40",
        ),
        Scenario::new(
            "healthy-corked-well-10ms",
            "header and body corked and uncorked",
            Wire::rtt(10.0),
            "c:exchange server --host HOST --port PORT --read 100 --write 200,300 --cork --uncork",
            &format!("py:exchange client {ask}"),
        ),
        Scenario::new(
            "healthy-bulk-0.05ms",
            "uploads in segment trains",
            Wire::veth(),
            "py:bulk server --host HOST --port PORT",
            "py:bulk client --host HOST --port PORT --size 1000000 --count 2",
        )
        .both_ends(),
        Scenario::new(
            "healthy-short-connections-2ms",
            "twenty connections with one request each",
            Wire::rtt(2.0).ipv6(),
            &format!("go:exchange server {one}"),
            &format!("py:exchange client {ask} --count 1 --connections 20"),
        ),
    ]
}
