//! Servers of this crate's own: what they keep, what they leave, whom they let in.
#![cfg(target_os = "linux")]

mod support;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hermes_state_testkit::{Missing, Server, ServerConfig};
use support::{becomes, runs};

fn folder(server: &Server) -> PathBuf {
    Path::new(&server.psql("SHOW data_directory")).parent().unwrap().to_owned()
}

/// A client over TCP that is not done before it is cut off.
fn busy_client(server: &Server, sql: &str) -> Child {
    let mut client = Command::new(server.psql_program());
    client.args([&server.url(), "-X", "-c", sql]).stdout(Stdio::null()).stderr(Stdio::null());
    let client = client.spawn().unwrap();
    assert!(becomes(|| server.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"));
    client
}

#[test]
fn a_server_answers_and_leaves_nothing_behind() {
    let Ok(server) = Server::start().inspect_err(Missing::skip) else { return };
    assert_eq!(server.psql("SELECT 1 + 1, 'é'; SELECT 3"), "2|é\n3");
    assert_eq!(server.psql("SHOW fsync; SHOW server_encoding; SHOW listen_addresses"), "on\nUTF8\n127.0.0.1");
    let (folder, pid, address) = (folder(&server), server.pid().unwrap(), server.host_port());
    assert!(server.url().contains(&address) && TcpStream::connect(&address).is_ok());
    assert!(folder.exists() && runs(pid));
    drop(server);
    assert!(!folder.exists() && !runs(pid) && TcpStream::connect(&address).is_err());
}

#[test]
fn a_killed_server_takes_its_backends_with_it_and_keeps_what_was_committed() {
    let Ok(server) = Server::start().inspect_err(Missing::skip) else { return };
    server.psql("CREATE TABLE kept (n int)");
    let mut client = busy_client(&server, "BEGIN; INSERT INTO kept VALUES (-1); SELECT pg_sleep(600)");
    let backends = server.psql("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
    let backends: Vec<u32> = backends.lines().map(|pid| pid.parse().unwrap()).collect();
    assert!(backends.len() > 3);
    let (url, port) = (server.url(), server.host_port());
    for round in 0..3 {
        server.psql(&format!("INSERT INTO kept VALUES ({round})"));
        server.kill();
        assert!(server.pid().is_none() && TcpStream::connect(&port).is_err());
        server.kill();
        server.restart();
    }
    assert!(!client.wait().unwrap().success());
    assert!(backends.iter().all(|pid| !runs(*pid)));
    assert_eq!(server.psql("SELECT n FROM kept ORDER BY n"), "0\n1\n2");
    assert_eq!((server.url(), server.host_port()), (url, port));
    assert!(server.log().contains("database system was not properly shut down"));
}

#[test]
fn a_stopped_server_comes_back_in_order() {
    let Ok(server) = Server::start().inspect_err(Missing::skip) else { return };
    server.psql("CREATE TABLE kept AS SELECT 7 AS n");
    server.stop();
    assert!(server.pid().is_none());
    server.restart();
    let before = server.pid();
    server.restart();
    assert!(before.is_some() && server.pid() != before);
    assert_eq!(server.psql("SELECT n FROM kept"), "7");
    assert!(!server.log().contains("not properly shut down"));
}

#[test]
fn a_server_that_is_dropped_while_it_is_dead_leaves_nothing_behind() {
    let Ok(server) = Server::start().inspect_err(Missing::skip) else { return };
    let folder = folder(&server);
    let key: String = server.psql("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 7)");
    let block = key.split_whitespace().last().unwrap().to_owned();
    let blocks = || {
        #[expect(clippy::disallowed_methods, reason = "a text of the kernel")]
        let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        text.lines().filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect::<Vec<_>>()
    };
    server.kill();
    assert!(blocks().contains(&block));
    drop(server);
    assert!(!folder.exists());
    assert!(!blocks().contains(&block));
}

#[test]
fn a_password_is_asked_for_where_one_is_set() {
    let config = ServerConfig::new().password("it's @ secret").setting("max_connections = 17");
    let Ok(server) = Server::start_with(&config).inspect_err(Missing::skip) else { return };
    assert_eq!(server.psql("SHOW max_connections"), "17");
    let says = |url: &str| {
        let output = Command::new(server.psql_program()).args([url, "-XAtwc", "SELECT 1"]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(says(&server.url()), (true, String::new()));
    let (let_in, why) = says(&server.url().replace("secret", "wrong"));
    assert!(!let_in && why.contains("password authentication failed"), "{why}");
}

#[test]
fn tls_is_spoken_with_a_certificate_that_can_be_verified() {
    let config = ServerConfig::new().tls().access_rule("hostnossl all all all reject");
    let Ok(server) = Server::start_with(&config).inspect_err(Missing::skip) else { return };
    let says = |parameters: &str| {
        let url = format!("{}?{parameters}", server.url().replace("127.0.0.1", "localhost"));
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let output = Command::new(server.psql_program()).args([&url, "-XAtwc", sql]).output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let authority = server.certificate_authority();
    let verified = format!("sslmode=verify-full&sslrootcert={}", authority.display());
    assert_eq!(says(&verified), ("t\n".into(), String::new()));
    let (said, why) = says("sslmode=disable");
    assert!(said.is_empty() && why.contains("pg_hba.conf rejects"), "{why}");
    let other = format!("sslmode=verify-full&sslrootcert={}", authority.with_file_name("nothing").display());
    assert_eq!(says(&other).0, "");
}

#[test]
fn a_server_that_does_not_start_says_why() {
    let config = ServerConfig::new().setting("no_such_setting = 1");
    let started = std::panic::catch_unwind(|| Server::start_with(&config).inspect_err(Missing::skip).map(drop));
    match started {
        Ok(outcome) => assert!(outcome.is_err(), "it started"),
        Err(panic) => assert!(panic.downcast_ref::<String>().unwrap().contains("no_such_setting")),
    }
}
