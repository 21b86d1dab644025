//! The server that a process's tests share, and the command that gives a whole run one.
#![cfg(target_os = "linux")]

mod support;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hermes_state_testkit::{Missing, PG_REQUIRED, PG_URL, Server, shared};
use support::{becomes, runs};

/// The variable that makes the test below that has a role play it, in a process of its own.
const ROLE: &str = "HERMES_STATE_TESTKIT_ROLE";

fn with_server() -> Command {
    Command::new(env!("CARGO_BIN_EXE_with-server"))
}

#[test]
fn a_space_is_a_schema_that_is_dropped_with_all_it_has() {
    let Some(shared) = shared() else { return };
    let space = shared.fresh();
    let name = space.schema().to_owned();
    let mark = if shared.url().contains('?') { '&' } else { '?' };
    assert_eq!(space.url(), format!("{}{mark}schema={name}", shared.url()));
    assert_eq!(space.shared().url(), shared.url());
    shared.psql(&format!("CREATE SCHEMA {name}"));
    space.psql(
        "CREATE TABLE a (n int PRIMARY KEY); CREATE TABLE b (n int REFERENCES a); CREATE VIEW c AS SELECT * FROM b",
    );
    assert_eq!(space.psql("INSERT INTO a VALUES (1); SELECT n FROM a"), "1");
    let schemas = || shared.psql(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{name}'"));
    assert_eq!(schemas(), "1");
    drop(space);
    assert_eq!(schemas(), "0");
}

#[test]
fn a_space_in_which_nothing_was_made_is_dropped_without_a_word() {
    let role = "a_space_in_which_nothing_was_made_is_dropped_without_a_word";
    let Some(shared) = shared() else { return };
    if std::env::var_os(ROLE).is_some() {
        return drop(shared.fresh());
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([role, "--exact", "--nocapture"]).env(ROLE, "").env(PG_URL, shared.url());
    let output = again.output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn no_two_spaces_have_the_same_name() {
    let Some(shared) = shared() else { return };
    let names =
        |spaces: &[_]| spaces.iter().map(|space: &hermes_state_testkit::Space| space.schema().to_owned()).collect();
    let spaces: Vec<_> = (0..5).map(|_| shared.fresh()).collect();
    let names: HashSet<String> = names(&spaces);
    assert_eq!(names.len(), 5);
}

#[test]
fn the_server_of_a_process_ends_with_it() {
    if std::env::var_os(ROLE).is_some() {
        // From a thread that ends long before the process.
        let found = std::thread::spawn(|| shared().is_some()).join().unwrap();
        if let Some(shared) = found.then(shared).flatten() {
            let folder = shared.psql("SHOW data_directory");
            // The harness has begun a line.
            std::io::Write::write_all(&mut std::io::stdout(), format!("\nfolder={folder}\n").as_bytes()).unwrap();
        }
        return;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["the_server_of_a_process_ends_with_it", "--exact", "--nocapture"]).env(ROLE, "").env_remove(PG_URL);
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let Some(folder) = text.lines().find_map(|line| line.strip_prefix("folder=")) else {
        assert!(Server::start().is_err(), "the process had no server: {text}");
        return;
    };
    assert!(becomes(|| !Path::new(folder).parent().unwrap().exists()), "{folder} is left behind");
}

#[test]
fn a_command_gets_a_server_and_its_exit_code_comes_back() {
    let Ok(server) = Server::start().inspect_err(Missing::skip) else { return };
    let script = format!("\"$1\" \"${PG_URL}\" -XAtc 'SELECT 6 * 7' || exit 1; exit 23");
    let mut command = with_server();
    command.args(["sh", "-c", &script, "sh"]).arg(server.psql_program()).env_remove(PG_URL);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(23));

    let killed = with_server().args(["sh", "-c", "kill -9 $$"]).env(PG_URL, server.url()).status().unwrap();
    assert_eq!(killed.code(), Some(137));
}

#[test]
fn a_server_that_the_environment_names_is_used() {
    let script = format!("echo ${PG_URL}");
    let output = with_server().args(["sh", "-c", &script]).env(PG_URL, "postgresql://elsewhere").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "postgresql://elsewhere\n");
    assert!(output.status.success());
}

#[test]
fn a_server_does_not_outlive_the_sigkill_of_its_process() {
    if Server::start().inspect_err(Missing::skip).is_err() {
        return;
    }
    let script = format!("echo $$; echo ${PG_URL}; exec sleep 600");
    let mut command = with_server();
    command.args(["sh", "-c", &script]).env_remove(PG_URL).stdout(Stdio::piped());
    let mut owner = command.spawn().unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (sleeper, url) = (lines.next().unwrap(), lines.next().unwrap());
    let address = url.split(['@', '/']).nth(3).unwrap().to_owned();
    let output = Command::new("psql").args([&url, "-XAtc", "SHOW data_directory"]).output().unwrap();
    let data = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    #[expect(clippy::disallowed_methods, reason = "a file of the server")]
    let text = std::fs::read_to_string(Path::new(&data).join("postmaster.pid")).unwrap();
    let postmaster: u32 = text.lines().next().unwrap().parse().unwrap();
    assert!(runs(postmaster) && std::net::TcpStream::connect(&address).is_ok());
    owner.kill().unwrap();
    owner.wait().unwrap();
    let gone = || !runs(postmaster) && !Path::new(&data).parent().unwrap().exists();
    assert!(becomes(gone), "{postmaster} or {data} is left behind");
    assert!(std::net::TcpStream::connect(&address).is_err());
    assert!(Command::new("kill").arg(sleeper).status().unwrap().success());
}

#[test]
fn without_postgresql_a_command_runs_all_the_same_unless_a_server_is_required() {
    // As on a machine where it is not installed: Debian's folder is hidden from this command and no other.
    let hidden = |required: bool| {
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none /usr/lib/postgresql && PATH=/usr/bin:/bin && echo hidden && exec \"$@\"";
        command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_with-server"), "echo", "done"]);
        command.env_remove(PG_URL).env_remove(PG_REQUIRED);
        if required {
            command.env(PG_REQUIRED, "1");
        }
        let output = command.process_group(0).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let (succeeded, said, why) = hidden(false);
    if !said.starts_with("hidden") || Path::new("/usr/bin/initdb").exists() {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED: PostgreSQL cannot be hidden here: {why}");
        return;
    }
    assert!(succeeded && said.ends_with("done\n"), "{said}{why}");
    assert!(why.starts_with("SKIPPED: no PostgreSQL server: install it (Debian: apt-get install postgresql) or set"));
    assert_eq!(why.lines().count(), 1, "{why}");
    let (succeeded, said, why) = hidden(true);
    assert!(!succeeded && said == "hidden\n" && why.contains("HERMES_STATE_TEST_PG_REQUIRED is set"), "{said}{why}");
}
