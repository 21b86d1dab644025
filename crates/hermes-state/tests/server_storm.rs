//! Storms over a server: it is killed, and connections to it are cut, while hosts write; nothing acknowledged is lost,
//! nothing is there twice, and no writer gives up.
#![cfg(all(feature = "postgres", target_os = "linux"))]
#![expect(clippy::print_stdout, reason = "tests say what they saw")]

#[path = "support/ledger.rs"]
mod ledger;
mod support;

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hermes_state::{LockKind, SessionDb};
use hermes_state_testkit::{CuttingProxy, Hosts, Missing, Server, ServerConfig};
use ledger::{Writers, check, write_as_process};
use support::{play, role};

/// Eight writers in each of three processes, each on a host of its own.
const HOSTS: usize = 3;
const THREADS: usize = 8;

/// The variable that makes each storm last so many seconds; by default they are as long as it takes to prove something.
const STORM_SECONDS: &str = "HERMES_STATE_TEST_STORM_SECONDS";

fn lasting(seconds: u64) -> Duration {
    let asked = std::env::var(STORM_SECONDS).ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(asked.unwrap_or(seconds))
}

/// One storm at a time: two would measure the machine.
static STORM: Mutex<()> = Mutex::new(());

/// Watches the attempts to write again: a trigger that runs for each of them, and numbers that no rollback takes back.
const COUNT_RECOVERIES: &str = "
    CREATE SEQUENCE recovered MINVALUE 0 START 0;
    SELECT nextval('recovered');
    CREATE FUNCTION note_recovery() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT 1 FROM applied_writes WHERE id = NEW.id) THEN PERFORM nextval('recovered'); END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER note_recovery BEFORE INSERT ON applied_writes FOR EACH ROW EXECUTE FUNCTION note_recovery();";

fn in_schema(server: &Server, sql: &str) -> String {
    server.psql(&format!("SET search_path TO hermes;\n{sql}"))
}

/// The command that plays the writers of a host; on the host itself where there are hosts.
fn writers_of(host: usize, test: &str, url: &str, hosts: Option<&Hosts>) -> Command {
    let played = play(test, &host.to_string(), Path::new(url), LockKind::Ordinary);
    let Some(hosts) = hosts else { return played };
    let mut command = hosts.command(host, played.get_program());
    command.args(played.get_args());
    command.envs(played.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

#[test]
fn a_server_killed_three_times_under_three_hosts_loses_doubles_and_disorders_no_acknowledged_message() {
    const NAME: &str =
        "a_server_killed_three_times_under_three_hosts_loses_doubles_and_disorders_no_acknowledged_message";
    if let Some((host, url)) = role() {
        return write_as_process(&url, &host, THREADS);
    }
    let _alone = STORM.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(server) = Server::start_with(&ServerConfig::new().all_addresses()).inspect_err(Missing::skip) else {
        return;
    };
    let url = format!("{}?schema=hermes", server.url());
    SessionDb::open(&url).expect("opens").close().expect("closes");
    let hosts = Hosts::make(HOSTS);
    let (acknowledged, received) = channel();
    let writers: Vec<Writers> = (0..HOSTS)
        .map(|host| {
            let url = hosts.as_ref().map_or_else(|| server.url(), |hosts| server.url_at(hosts.server_address(host)));
            Writers::start(writers_of(host, NAME, &format!("{url}?schema=hermes"), hosts.as_ref()), &acknowledged)
        })
        .collect();
    drop(acknowledged);
    let storm = lasting(21);
    let started = Instant::now();
    for kill in 1..=3 {
        std::thread::sleep((storm * kill / 4).saturating_sub(started.elapsed()));
        server.kill();
        // Long enough that writers notice and wait.
        std::thread::sleep(Duration::from_millis(500) * kill);
        server.restart();
    }
    std::thread::sleep(storm.saturating_sub(started.elapsed()));
    writers.into_iter().for_each(Writers::stop);
    let found = check(&url, received, &|sql| in_schema(&server, sql));
    println!(
        "3 kills in {:.0} s, {}: {} messages acknowledged, {} stored, {} of them at a later attempt",
        started.elapsed().as_secs_f64(),
        if hosts.is_some() { "3 hosts" } else { "3 processes" },
        found.acknowledged,
        found.stored,
        in_schema(&server, "SELECT COUNT(*) FROM applied_writes WHERE attempt > 0;"),
    );
    assert!(found.acknowledged > 300, "the storm was no storm: {}", found.acknowledged);
}

#[test]
fn connections_cut_at_random_points_lose_double_and_disorder_no_acknowledged_message() {
    const NAME: &str = "connections_cut_at_random_points_lose_double_and_disorder_no_acknowledged_message";
    if let Some((host, url)) = role() {
        return write_as_process(&url, &host, THREADS);
    }
    let _alone = STORM.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(server) = Server::start().inspect_err(Missing::skip) else { return };
    let direct = format!("{}?schema=hermes", server.url());
    SessionDb::open(&direct).expect("opens").close().expect("closes");
    in_schema(&server, COUNT_RECOVERIES);
    let proxy = CuttingProxy::start(&server.host_port(), u64::from(std::process::id()));
    let (acknowledged, received) = channel();
    let writers: Vec<Writers> = (0..HOSTS)
        .map(|host| Writers::start(writers_of(host, NAME, &proxy.url(&direct), None), &acknowledged))
        .collect();
    drop(acknowledged);
    proxy.cut_randomly(true);
    std::thread::sleep(lasting(16));
    proxy.cut_randomly(false);
    writers.into_iter().for_each(Writers::stop);
    let recovered: u64 = in_schema(&server, "SELECT last_value FROM recovered;").parse().expect("a number");
    let found = check(&direct, received, &|sql| in_schema(&server, sql));
    println!(
        "{} of {} connections cut: {} messages acknowledged, {} stored, {recovered} lost acknowledgements recovered, {} \
         stored at a later attempt",
        proxy.cuts(),
        proxy.connections(),
        found.acknowledged,
        found.stored,
        in_schema(&server, "SELECT COUNT(*) FROM applied_writes WHERE attempt > 0;"),
    );
    assert!(recovered > 0, "no acknowledgement was lost and recovered: the storm proves nothing");
    assert!(found.acknowledged > 100 && proxy.cuts() > 20, "the storm was no storm");
}
