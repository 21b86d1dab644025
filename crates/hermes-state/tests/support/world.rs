//! A server of a test's own with a store on it, and other people's sessions on that server.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of this")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hermes_state::{NewSession, OpenOptions, Patience, SessionDb};
use hermes_state_testkit::{Missing, Server, ServerConfig};

/// A server with a store that has a session `s`.
pub struct World {
    pub server: Server,
    pub url: String,
}

impl World {
    /// `None`, after saying so, where there is no server.
    pub fn make() -> Option<Self> {
        Self::with(&ServerConfig::new())
    }

    pub fn with(config: &ServerConfig) -> Option<Self> {
        let server = Server::start_with(config).inspect_err(Missing::skip).ok()?;
        let url = format!("{}?schema=hermes", server.url());
        let db = SessionDb::open(&url).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        db.close().expect("closes");
        Some(Self { server, url })
    }

    pub fn open(&self) -> SessionDb {
        SessionDb::open(&self.url).expect("opens")
    }

    /// Runs SQL on the store's schema.
    pub fn psql(&self, sql: &str) -> String {
        self.server.psql(&format!("SET search_path TO hermes;\n{sql}"))
    }

    /// What the session `s` has.
    pub fn texts(&self) -> Vec<String> {
        let texts = self.psql("SELECT content FROM messages WHERE session_id = 's' ORDER BY id;");
        texts.lines().map(ToOwned::to_owned).collect()
    }

    /// A `psql` that has run these statements and keeps its session. Its process of the server is `pid`.
    pub fn other_session(&self, statements: &str) -> OtherSession {
        let mut child = Command::new(self.server.psql_program())
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", &self.server.url()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut input = child.stdin.take().expect("piped");
        writeln!(input, "SET search_path TO hermes;\n{statements}\nSELECT 'is-' || pg_backend_pid();")
            .expect("listens");
        let pid = loop {
            let line = lines.next().expect("an answer").expect("text");
            if let Some(pid) = line.strip_prefix("is-") {
                break pid.parse().expect("a pid");
            }
        };
        OtherSession { child, input: Some(input), pid }
    }
}

/// Somebody else's session; ends when it is dropped.
pub struct OtherSession {
    child: Child,
    input: Option<std::process::ChildStdin>,
    pub pid: i32,
}

impl OtherSession {
    pub fn say(&mut self, statements: &str) {
        writeln!(self.input.as_mut().expect("open"), "{statements}").expect("listens");
    }
}

impl Drop for OtherSession {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.child.wait();
    }
}

pub fn patience(seconds: f64) -> Patience {
    Patience { transcript: Duration::from_secs_f64(seconds), routine: Duration::from_secs_f64(seconds) }
}

pub fn open_with(url: &str, seconds: f64) -> SessionDb {
    OpenOptions::new().patience(patience(seconds)).open(url).expect("opens")
}

/// Looks until it is so; fails after a minute.
pub fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    let started = Instant::now();
    while !look() {
        assert!(started.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
