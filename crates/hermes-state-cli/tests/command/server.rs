//! The command on a store that is on a server: named by URL, by variable, wrongly, and while the server is away.
#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hermes_state_testkit::{Server, ServerConfig, shared};
use serde_json::json;

use crate::world::{Outcome, World, line};

/// No one may see it, in whatever comes of it.
const SECRET: &str = "Xanadu-7";

const LOOKS: [&str; 6] = ["list", "list --json", "search harbour", "search harbour --json", "status", "status --json"];

/// A server that asks for the password [`SECRET`]; `None`, after saying so, where none is installed.
fn with_password() -> Option<Server> {
    shared()?;
    Server::start_with(&ServerConfig::new().password(SECRET)).ok()
}

fn run_with(world: &World, variables: &[(&str, &str)], words: &str) -> Outcome {
    let mut command = world.command(words);
    let outcome = Outcome::of(command.envs(variables.iter().copied()).output().unwrap());
    assert!(!format!("{outcome:?}").contains(SECRET), "{outcome:?}");
    outcome
}

#[test]
fn a_store_on_a_server_is_missing_then_made_then_looked_at() {
    let Some(server) = shared() else { return };
    let (space, world) = (server.fresh(), World::new());
    let url = space.url();
    let run = |words: &str| world.run(&format!("{words} --db {url}"));
    for look in LOOKS {
        let looked = run(look).expect_code(0);
        if look.ends_with("--json") {
            assert_eq!((looked.err.as_str(), &looked.json()["store"]), ("", &json!(url)), "{look}");
        } else {
            assert_eq!(looked.out, "", "{look}");
            assert!(looked.err.contains("there is no store at postgresql://"), "{looked:?}");
        }
    }
    assert_eq!(run("status --json").json()["exists"], false);
    let shown = run("show s1 --json").expect_code(1).error();
    assert_eq!(shown["kind"], "not-found");
    assert!(shown["hints"][0].as_str().unwrap().contains("There is no store at postgresql://"), "{shown}");
    let made = server.psql(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'", space.schema()));
    assert_eq!(made, "0", "looking created the schema");

    let lines = [line("user", "Where is the harbour?"), line("assistant", "North.")].concat();
    let recorded = world.run_with_input(&format!("record --session s1 --db {url}"), lines).expect_code(0);
    assert_eq!(recorded.out, "1 1\n2 2\n");
    assert!(run("list").expect_code(0).out.contains(" s1 "));
    let listed = run("list --json").expect_code(0).json();
    assert_eq!((&listed["store"], &listed["sessions"][0]["id"]), (&json!(url), &json!("s1")));
    let hits = run("search harbour --json").expect_code(0).json();
    assert_eq!(hits["hits"][0]["snippet"], "Where is the >>>harbour<<<?");
    assert_eq!(hits["degraded"], false);
    let shown = run("show s1 --json").expect_code(0).json();
    assert_eq!(shown["messages"][1]["content"], "North.");
    let status = run("status --json").expect_code(0).json();
    assert_eq!((&status["engine"], &status["schema"]), (&json!("postgresql"), &json!(space.schema())));
    assert_eq!((&status["sessions"], &status["messages"]), (&json!(1), &json!(2)));
    let told = run("status").expect_code(0).out;
    assert!(told.contains("PostgreSQL 1") && told.contains(space.schema()), "{told}");
    assert!(!world.folder().exists(), "a store on a server leaves no file");
}

#[test]
fn the_variable_names_the_store_unless_an_option_does() {
    let Some(server) = shared() else { return };
    let (space, world) = (server.fresh(), World::new());
    let url = space.url();
    let store = |variables: &[(&str, &str)], words: &str| {
        run_with(&world, variables, &format!("{words} --json")).expect_code(0).json()["store"].clone()
    };
    assert_eq!(store(&[("HERMES_STATE_URL", &url)], "list"), json!(url));
    assert_eq!(store(&[("HERMES_STATE_URL", &format!(" {url}\n"))], "list"), json!(url));
    assert_eq!(store(&[("HERMES_STATE_URL", " ")], "list"), json!(world.store()));
    let elsewhere = world.folder().join("elsewhere.db").display().to_string();
    assert_eq!(store(&[("HERMES_STATE_URL", &url)], &format!("list --db {elsewhere}")), json!(elsewhere));
    for wrong in [SECRET, "state.db", "/tmp/state.db"] {
        let refused = run_with(&world, &[("HERMES_STATE_URL", wrong)], "list --json").expect_code(2).error();
        assert_eq!(refused["kind"], "usage");
        assert!(refused["message"].as_str().unwrap().starts_with("what HERMES_STATE_URL holds is not"), "{refused}");
    }
    let demo = world.run(&format!("demo --json --db {url}")).expect_code(2).error();
    assert!(demo["message"].as_str().unwrap().contains("runs on a temporary file"), "{demo}");
}

#[test]
fn the_password_comes_from_the_url_or_the_variable_and_is_never_shown() {
    let Some(server) = with_password() else { return };
    let world = World::new();
    let with = server.url();
    let without = with.replace(&format!(":{SECRET}"), "");
    assert!(with.contains(SECRET) && !without.contains(SECRET));
    let message = world.folder().with_extension("jsonl");
    #[expect(clippy::disallowed_methods, reason = "not a store file")]
    std::fs::write(&message, line("user", "Where is the harbour?")).unwrap();
    for (variables, url) in
        [(vec![], &with), (vec![("PGPASSWORD", SECRET)], &without), (vec![("PGPASSWORD", "no")], &with)]
    {
        let mut record = world.command("record --session s1 --json");
        #[expect(clippy::disallowed_methods, reason = "not a store file")]
        let input = std::fs::File::open(&message).unwrap();
        record.args(["--db", url]).envs(variables.iter().copied()).stdin(input);
        let recorded = Outcome::of(record.output().unwrap()).expect_code(0);
        assert!(!format!("{recorded:?}").contains(SECRET));
        for words in LOOKS.iter().chain(&["show s1", "show s1 --json"]) {
            let looked = run_with(&world, &variables, &format!("{words} --db {url}")).expect_code(0);
            if words.ends_with("--json") {
                assert_eq!(looked.json()["store"], json!(without));
            }
        }
    }
    for variables in [vec![], vec![("PGPASSWORD", "")], vec![("PGPASSWORD", "wrong-one")]] {
        let refused = run_with(&world, &variables, &format!("list --json --db {without}")).expect_code(1).error();
        let told = refused.to_string();
        assert!(told.contains("refuses the user postgres") && told.contains("PGPASSWORD"), "{refused}");
        assert!(!told.contains("wrong-one"), "{refused}");
    }
    // Where no URL is expected, it is quoted without its password.
    for words in ["list {}", "{}", "show {}", "list --limit {}", "record --session s --patience={}", "--color={} list"]
    {
        for json in ["", " --json"] {
            let mut command = world.command(&words.replace("{}", &with));
            let refused = Outcome::of(command.args(json.split_whitespace()).output().unwrap());
            assert!(matches!(refused.code, Some(1 | 2)), "{words}: {refused:?}");
            assert!(!format!("{refused:?}").contains(SECRET), "{words}: {refused:?}");
        }
    }
}

/// A server of version 13, as far as a client sees before it is refused.
fn too_old() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // Each answer after what it answers: the start, and the one question.
            let mut answer = |bytes: &[u8]| {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(bytes);
            };
            let fields = ["version_number", "version", "encoding", "read_only", "pid"];
            let values = ["130014", "13.14", "UTF8", "off", "7"];
            let mut described = (fields.len() as u16).to_be_bytes().to_vec();
            let mut row = described.clone();
            for (field, value) in fields.iter().zip(values) {
                described.extend(field.bytes());
                // No table, text of any length in text format.
                described.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
                row.extend((value.len() as u32).to_be_bytes());
                row.extend(value.bytes());
            }
            let message = |kind: u8, body: &[u8]| [&[kind], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat();
            answer(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat());
            answer(
                &[message(b'T', &described), message(b'D', &row), message(b'C', b"SELECT 1\0"), message(b'Z', b"I")]
                    .concat(),
            );
            // Until the client goes.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    port
}

#[test]
fn each_bad_location_is_an_error_of_its_own_in_time_and_makes_nothing() {
    let Some(server) = with_password() else { return };
    let (at, world) = (server.host_port(), World::new());
    server.psql(&format!(
        "CREATE ROLE guest LOGIN PASSWORD '{SECRET}'; CREATE SCHEMA closed; REVOKE CREATE ON DATABASE postgres FROM PUBLIC"
    ));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().port();
    let log_in = format!("postgresql://postgres:{SECRET}@");
    let cases = [
        (format!("{log_in}nowhere.invalid/postgres"), 1, "the host nowhere.invalid is not known; check the host"),
        (
            format!("{log_in}127.0.0.1:1/postgres"),
            3,
            "nothing accepts connections at 127.0.0.1:1; check the host and port",
        ),
        (format!("{log_in}127.0.0.1:{silent}/postgres?connect_timeout=1"), 3, "check the host and port"),
        (format!("postgresql://postgres:{SECRET}-not@{at}/postgres"), 1, "check user and password"),
        (format!("{log_in}{at}/absent"), 1, "has no database absent; create it, or name another"),
        (format!("postgresql://guest:{SECRET}@{at}/postgres?schema=closed"), 1, "in schema closed"),
        (format!("postgresql://guest:{SECRET}@{at}/postgres?schema=fresh"), 1, "in schema fresh"),
        (format!("{log_in}{at}/postgres?sslmode=require"), 1, "offers no TLS, which sslmode demands; switch it on"),
        (
            format!("{log_in}127.0.0.1:{}/postgres?sslmode=disable", too_old()),
            1,
            "PostgreSQL 13.14, and 14 is the oldest",
        ),
        (format!("{log_in}{at}/postgres?schema=a-b"), 2, "schema is not a name"),
        (format!("{log_in}{at}/postgres?sslmod=require"), 2, "sslmod"),
        (format!("postgres:/{SECRET}"), 2, "lacks its ://; write postgresql://"),
        (format!("postgresql:{SECRET}"), 2, "lacks its ://; write postgresql://"),
        (format!("http://user:{SECRET}@{at}/postgres"), 2, "neither postgresql:// nor postgres://"),
    ];
    thread::scope(|scope| {
        for (url, code, told) in &cases {
            for words in ["record --session s1 --no-spool --json", "list --json"] {
                // Looking at a schema that is not there finds no store, which is no error.
                if words.starts_with("list") && url.ends_with("schema=fresh") {
                    continue;
                }
                let world = &world;
                scope.spawn(move || {
                    let started = Instant::now();
                    let refused = run_with(world, &[], &format!("{words} --db {url}")).expect_code(*code);
                    assert!(started.elapsed() < Duration::from_secs(8), "{url}: {:?}", started.elapsed());
                    let message = refused.error()["message"].as_str().unwrap().to_owned();
                    assert!(message.contains(told), "{url}: {message}");
                    assert_eq!(refused.error()["retryable"], *code == 3);
                });
            }
        }
    });
    let made = server.psql("SELECT count(*) FROM pg_class WHERE relname IN ('sessions', 'server_layout')");
    assert_eq!(made, "0", "a refused opening left tables");
    assert_eq!(std::fs::read_dir(world.folder().parent().unwrap()).unwrap().count(), 0, "a URL became a file");
}

/// A session of the server that holds a lock which every write of ours needs, until it is dropped.
struct Holder(Child);

impl Holder {
    fn of(server: &Server) -> Self {
        let mut psql = Command::new(server.psql_program());
        psql.args(["-X", "-q", "-A", "-t", &server.url()]).env("PGAPPNAME", "the-holder");
        let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let sql = "BEGIN; LOCK TABLE hermes_state.sessions, hermes_state.applied_writes; SELECT 'held';\n";
        child.stdin.as_mut().unwrap().write_all(sql.as_bytes()).unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn messages_for_a_server_that_is_away_are_spooled_in_the_home_folder_and_no_password_is_shown() {
    let world = World::new();
    let record = "record --session s1 --patience 0.2 --db postgresql://me:Xanadu-7@127.0.0.1:1/postgres";
    let spooled = world.run_with_input(record, line("user", "kept")).expect_code(0);
    assert!(spooled.out.starts_with("1 spooled "), "{spooled:?}");
    assert!(!spooled.err.contains("Xanadu"), "{spooled:?}");
    let list = world.run("spool list --json --db postgresql://me:other@127.0.0.1:1/postgres").expect_code(0).json();
    assert_eq!(list["waiting"], 1, "the spool does not depend on the password");
    assert!(list["folder"].as_str().unwrap().contains("hermes/spool/"), "{list}");
}

#[test]
fn a_lock_of_another_session_is_code_3_and_a_server_that_is_away_stops_the_stream() {
    let Some(server) = with_password() else { return };
    let world = World::new();
    let url = server.url();
    let record = format!("record --session s1 --json --no-spool --patience 2.5 --db {url}");
    world.run_with_input(&record, line("user", "first")).expect_code(0);
    let holder = Holder::of(&server);
    let busy = world.run_with_input(&record, line("user", "second")).expect_code(3).error();
    assert_eq!((&busy["kind"], &busy["retryable"]), (&json!("busy"), &json!(true)));
    assert!(busy["message"].as_str().unwrap().contains("the-holder"), "{busy}");
    drop(holder);

    let (mut child, mut stdin) = world.start(&record);
    let mut told = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(line("user", "second").as_bytes()).unwrap();
    told.read_line(&mut String::new()).unwrap();
    let status = world.run(&format!("status --json --db {url}")).expect_code(0).json();
    let ours = |user: &serde_json::Value| user["program"] == "hermes-state" && user["host"] == "127.0.0.1";
    assert!(status["open_by"].as_array().unwrap().iter().any(ours), "{status:#}");
    let told_people = world.run(&format!("status --db {url}")).expect_code(0).out;
    assert!(told_people.contains("hermes-state from 127.0.0.1, served by process "), "{told_people}");
    server.kill();
    stdin.write_all([line("user", "third"), line("user", "fourth")].concat().as_bytes()).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{said}");
    let error = serde_json::from_str::<serde_json::Value>(&said).unwrap()["error"].clone();
    assert_eq!((&error["kind"], &error["line"]), (&json!("unreachable"), &json!(2)), "{error}");
    assert!(error["hints"].to_string().contains("send those lines again"), "{error}");
    assert!(!said.contains(SECRET));
    server.restart();
    let shown = world.run(&format!("show s1 --json --db {url}")).expect_code(0).json();
    assert_eq!(shown["messages"].as_array().unwrap().len(), 2, "{shown}");
}

#[test]
fn a_file_whose_name_is_no_text_is_a_store_like_any_other() {
    let world = World::new();
    let path = world.folder().parent().unwrap().join(std::ffi::OsStr::from_bytes(b"st\xffte.db"));
    let run = |words: &str| {
        let mut command = world.command(words);
        Outcome::of(command.arg("--db").arg(&path).output().unwrap()).expect_code(0)
    };
    run("record --session s1");
    for words in ["list --json", "status --json", "search x --json", "show s1 --json"] {
        assert!(run(words).json()["store"].as_str().unwrap().ends_with("/st\u{fffd}te.db"));
    }
    assert!(path.exists());
}
