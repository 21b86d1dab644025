//! The one server that the tests of a process share, with a schema of its own for each of them.

use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::installation::{Installation, Missing, client};
use crate::random::unforeseeable;
use crate::server::{Server, psql};
use crate::url;

/// The variable with the URL of a server that the tests may use: all rights, and nothing on it that matters.
pub const PG_URL: &str = "HERMES_STATE_TEST_PG_URL";
/// The variable that, when set, makes the absence of a server a failure.
pub const PG_REQUIRED: &str = "HERMES_STATE_TEST_PG_REQUIRED";

/// A server that tests share: those of this process, or all of a run.
#[derive(Debug)]
pub struct Shared {
    url: String,
    psql: PathBuf,
    /// Never dropped, as a static; its guard ends it with the process.
    _server: Option<Server>,
}

/// The server that the environment names ([`PG_URL`]), or else one that this process starts at the first call and that
/// ends with the process. `None` where there is no PostgreSQL, after one loud line: the test is to be skipped.
///
/// # Panics
///
/// Where there is none and the environment says that there must be one ([`PG_REQUIRED`]).
pub fn shared() -> Option<&'static Shared> {
    static SHARED: OnceLock<Option<Shared>> = OnceLock::new();
    // A panic in here is one for each test that asks, since nothing is stored then.
    SHARED.get_or_init(|| Shared::find().inspect_err(Missing::skip).ok()).as_ref()
}

/// Whether a run without a server is a failure ([`PG_REQUIRED`]).
#[must_use]
pub fn server_required() -> bool {
    std::env::var_os(PG_REQUIRED).is_some()
}

impl Shared {
    fn find() -> Result<Self, Missing> {
        let client = || Installation::newest().map_or_else(|_| "psql".into(), |installed| installed.program("psql"));
        if let Ok(url) = std::env::var(PG_URL) {
            return Ok(Self { url, psql: client(), _server: None });
        }
        let server = Server::start()?;
        Ok(Self { url: server.url(), psql: client(), _server: Some(server) })
    }

    /// The URL of the server, without a schema.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens, as `127.0.0.1:54321`.
    #[must_use]
    pub fn host_port(&self) -> String {
        let (host, port) = url::host_port(&self.url);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Runs SQL, each statement by itself, and gives what `psql` prints: rows as lines, columns with `|` between them.
    ///
    /// # Panics
    ///
    /// With the server's words when a statement fails.
    pub fn psql(&self, sql: &str) -> String {
        self.try_psql(sql).unwrap_or_else(|message| panic!("psql: {message}\nin: {sql}"))
    }

    /// The name of a schema that is nobody's, in which a test makes what it likes.
    #[must_use]
    pub fn fresh(&'static self) -> Space {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Numbers of processes come again, and those in containers are the same at the same time.
        let random = unforeseeable() & 0xFFFF_FFFF;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Space { shared: self, schema: format!("test_{seconds:x}_{random:08x}_{count}") }
    }

    fn try_psql(&self, sql: &str) -> Result<String, String> {
        let mut command = client(&self.psql);
        command.arg("-w").args(["-d", &self.url]);
        psql(command, sql)
    }
}

/// A schema for one test, dropped with everything in it when this is.
#[derive(Debug)]
pub struct Space {
    shared: &'static Shared,
    schema: String,
}

impl Space {
    /// The URL of the server with `schema=` as its parameter.
    #[must_use]
    pub fn url(&self) -> String {
        url::with_parameter(&self.shared.url, "schema", &self.schema)
    }

    /// The schema's name. It needs no quotes in SQL.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The server it is on.
    #[must_use]
    pub fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// Runs SQL with this schema as the search path, otherwise as [`Shared::psql`].
    ///
    /// # Panics
    ///
    /// With the server's words when a statement fails.
    pub fn psql(&self, sql: &str) -> String {
        self.shared.psql(&format!("SET search_path TO {};\n{sql}", self.schema))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // Never waits for good: a connection that a failed test has left may hold locks until its process ends.
        let sql = format!(
            "SET client_min_messages TO warning; SET lock_timeout TO '20s';\nDROP SCHEMA IF EXISTS {} CASCADE;",
            self.schema
        );
        if let Err(message) = self.shared.try_psql(&sql) {
            let _ = writeln!(std::io::stderr(), "the schema {} is left behind: psql: {message}", self.schema);
        }
    }
}
