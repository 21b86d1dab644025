//! The proxy that loses connections: what goes through, and what is cut.
#![cfg(target_os = "linux")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use hermes_state_testkit::{CuttingProxy, Missing, Server};

const LONG: Duration = Duration::from_secs(30);

/// A server that sends back what it gets, and tells how each of its connections ended.
fn echo() -> (String, Receiver<Result<u64, ErrorKind>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (ends, told) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let ends = ends.clone();
            thread::spawn(move || {
                let copied = std::io::copy(&mut &stream, &mut &stream).map_err(|error| error.kind());
                let _ = stream.shutdown(Shutdown::Write);
                let _ = ends.send(copied);
            });
        }
    });
    (address, told)
}

fn client(proxy: &CuttingProxy) -> TcpStream {
    let client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client
}

fn is_reset(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

#[test]
fn everything_goes_through_in_order_with_the_ends_of_both_sides() {
    let (target, ends) = echo();
    let proxy = CuttingProxy::start(&target, 1);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let mut near = client(&proxy);
    let mut writer = near.try_clone().unwrap();
    let copy = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    near.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent);
    assert_eq!(ends.recv_timeout(LONG).unwrap(), Ok(3_000_000));
    assert_eq!((proxy.connections(), proxy.cuts()), (1, 0));
}

/// The bytes that came back until the connection was cut.
fn bytes_until_cut(proxy: &CuttingProxy) -> u64 {
    let mut near = client(proxy);
    let mut count = 0;
    loop {
        let mut byte = [0; 16];
        match near.write_all(&byte).and_then(|()| near.read_exact(&mut byte)) {
            Ok(()) => count += 16,
            Err(error) => {
                assert!(is_reset(error.kind()) || error.kind() == ErrorKind::UnexpectedEof, "{error}");
                return count;
            }
        }
    }
}

#[test]
fn every_connection_is_cut_on_both_sides_sooner_or_later() {
    let (target, ends) = echo();
    let proxy = CuttingProxy::start(&target, 2);
    proxy.cut_randomly(true);
    let counts: Vec<u64> = (0..20).map(|_| bytes_until_cut(&proxy)).collect();
    assert!(counts.iter().any(|count| *count < 256) && counts.iter().any(|count| *count > 256), "{counts:?}");
    assert_eq!((proxy.connections(), proxy.cuts()), (20, 20));
    for _ in 0..20 {
        let end = ends.recv_timeout(LONG).unwrap();
        assert!(end.is_err_and(is_reset), "{end:?}");
    }
    proxy.cut_randomly(false);
    let mut near = client(&proxy);
    for _ in 0..1000 {
        near.write_all(&[1; 1000]).unwrap();
        near.read_exact(&mut [0; 1000]).unwrap();
    }
    proxy.cut_randomly(true);
    // It sends nothing any more; the byte that it waits for never comes, so the time must end it, or its next bytes.
    near.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    while near.write_all(&[1; 1000]).and_then(|()| near.read_exact(&mut [0; 1000])).is_ok() {}
    assert_eq!((proxy.connections(), proxy.cuts()), (21, 21));
}

#[test]
fn all_connections_are_cut_at_a_word_and_new_ones_are_not() {
    let (target, _ends) = echo();
    let proxy = CuttingProxy::start(&target, 3);
    let mut olds: Vec<TcpStream> = (0..3).map(|_| client(&proxy)).collect();
    for old in &mut olds {
        old.write_all(b"x").unwrap();
        old.read_exact(&mut [0]).unwrap();
    }
    proxy.cut_all();
    for old in &mut olds {
        assert!(is_reset(old.read(&mut [0]).unwrap_err().kind()));
    }
    assert_eq!(proxy.cuts(), 3);
    let mut new = client(&proxy);
    new.write_all(b"x").unwrap();
    new.read_exact(&mut [0]).unwrap();
    assert_eq!(proxy.cuts(), 3);
}

#[test]
fn a_stalled_proxy_takes_everything_and_gives_nothing_until_it_goes_on() {
    let (target, _ends) = echo();
    let proxy = CuttingProxy::start(&target, 4);
    let mut old = client(&proxy);
    old.write_all(b"x").unwrap();
    old.read_exact(&mut [0]).unwrap();
    proxy.stall(true);
    let mut new = client(&proxy);
    for stream in [&mut old, &mut new] {
        stream.write_all(b"y").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        stream.set_read_timeout(Some(LONG)).unwrap();
    }
    proxy.stall(false);
    for stream in [&mut old, &mut new] {
        stream.read_exact(&mut [0]).unwrap();
    }
    assert_eq!(proxy.connections(), 2);
    proxy.stall(true);
    drop(proxy);
    assert!(is_reset(old.read(&mut [0]).unwrap_err().kind()));
}

#[test]
fn a_server_that_is_not_there_is_a_reset_and_no_cut() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = CuttingProxy::start(&free.to_string(), 5);
    let mut near = client(&proxy);
    assert!(is_reset(near.read(&mut [0]).unwrap_err().kind()));
    assert_eq!((proxy.connections(), proxy.cuts()), (1, 0));
}

#[test]
fn what_a_database_confirmed_through_cuts_is_there() {
    let Ok(server) = Server::start().inspect_err(Missing::skip) else { return };
    server.psql("CREATE TABLE rows (n int)");
    let proxy = CuttingProxy::start(&server.host_port(), 6);
    let url = proxy.url(&server.url());
    let insert = |number: u32| {
        let sql = format!("INSERT INTO rows VALUES ({number})");
        let output = Command::new(server.psql_program()).args([&url, "-Xqc", &sql]).output().unwrap();
        output.status.success()
    };
    assert!(insert(0));
    proxy.cut_randomly(true);
    let confirmed: Vec<u32> = (1..=60).filter(|number| insert(*number)).collect();
    let stored: Vec<u32> = server.psql("SELECT n FROM rows").lines().map(|number| number.parse().unwrap()).collect();
    assert!(confirmed.iter().all(|number| stored.contains(number)), "confirmed {confirmed:?}, stored {stored:?}");
    assert!(!confirmed.is_empty() && proxy.cuts() > 0, "{} cuts, {} confirmed", proxy.cuts(), confirmed.len());
}
