//! A store for one test: on either engine, of an older release, or with a stranger who writes beside.

use std::io::Write as _;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use hermes_state::{NewSession, OpenOptions, SessionDb};
use hermes_state_testkit::Space;
#[cfg(feature = "postgres")]
use hermes_state_testkit::shared;

/// Defines, for each of these functions, tests on a new file, on files of older releases, beside a stranger who writes to
/// the file, and on a server.
macro_rules! on_each_engine {
    ($($name:ident)*) => {
        mod on_a_file {
            $(#[test] fn $name() { super::$name($crate::world::World::on_a_file()); })*
        }
        mod on_older_files {
            $(#[test] fn $name() { $crate::world::World::on_older_files().for_each(super::$name); })*
        }
        mod beside_a_writer {
            $(#[test] fn $name() { super::$name($crate::world::World::beside_a_writer()); })*
        }
        #[cfg(feature = "postgres")]
        mod on_a_server {
            $(#[test] fn $name() {
                if let Some(world) = $crate::world::World::on_a_server() {
                    super::$name(world);
                }
            })*
        }
    };
}
pub(crate) use on_each_engine;

/// The same, and a test on a file with an index of Chinese, Japanese and Korean, as hosts with its tokenizer have.
macro_rules! on_each_engine_and_index {
    ($($name:ident)*) => {
        mod with_each_index {
            use super::*;
            $crate::world::on_each_engine! { $($name)* }
            mod on_a_file_with_pairs {
                $(#[test] fn $name() { super::$name($crate::world::World::on_a_file_with_pairs()); })*
            }
        }
    };
}
pub(crate) use on_each_engine_and_index;

pub(crate) struct World {
    db: SessionDb,
    // Before its file goes.
    _writer: Option<Writer>,
    home: Home,
    /// Of which of the older releases it is; the columns of its tables may be in another order than in new files.
    release: Option<usize>,
}

enum Home {
    File(tempfile::TempDir),
    /// On a host on which every program has the tokenizer of the index of pairs.
    FileWithPairs(tempfile::TempDir),
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "there are only files"))]
    Server(Space),
}

impl Home {
    fn open(&self) -> SessionDb {
        match self {
            Home::File(folder) => SessionDb::open(folder.path().join("state.db")),
            Home::FileWithPairs(folder) => OpenOptions::new().cjk(true).open(folder.path().join("state.db")),
            Home::Server(space) => SessionDb::open(space.url()),
        }
        .expect("opens")
    }
}

/// The releases whose files are at hand, by the version of their schema.
const RELEASES: [&str; 7] = ["v2", "v6", "v11", "v16", "v20", "v22", "v23"];

/// A file of an older release, brought up to date and without its sessions.
fn emptied(release: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.db");
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/state-{release}.db"));
    #[expect(clippy::disallowed_methods, reason = "nobody has either file open")]
    std::fs::copy(original, &file).expect("copied");
    SessionDb::open(&file).expect("is brought up to date").close().expect("closes");
    let connection = rusqlite::Connection::open(&file).expect("opens");
    connection
        .execute_batch(
            "PRAGMA foreign_keys = OFF; DELETE FROM messages; DELETE FROM sessions; DELETE FROM session_model_usage; \
             DELETE FROM compression_locks; DELETE FROM gateway_routing; DELETE FROM sqlite_sequence;",
        )
        .expect("is emptied");
    connection.close().expect("closes");
    #[expect(clippy::disallowed_methods, reason = "nobody has the file open")]
    std::fs::read(file).expect("reads")
}

/// A process with the SQLite of Python's library that writes to the store without pause, through its triggers, and leaves
/// nothing behind.
struct Writer(Child);

const WRITER: &str = r#"
import select, sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("PRAGMA foreign_keys = ON")
told = False
while not select.select([sys.stdin], [], [], 0.004)[0]:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('beside', 'other', ?)", (time.time(),))
    connection.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('beside', 'user', 'written beside 東京', 1)"
    )
    connection.execute("UPDATE messages SET content = 'written again' WHERE session_id = 'beside'")
    connection.execute("DELETE FROM messages WHERE session_id = 'beside'")
    connection.execute("DELETE FROM sessions WHERE id = 'beside'")
    connection.execute("UPDATE sqlite_sequence SET seq = seq - 1 WHERE name = 'messages'")
    connection.execute("COMMIT")
    if not told:
        print("writing", flush=True)
        told = True
"#;

impl Writer {
    fn beside(store: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", WRITER]).arg(store).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is installed");
        let mut told = String::new();
        let output = child.stdout.as_mut().expect("is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut told).expect("reads");
        assert_eq!(told, "writing\n", "the stranger writes");
        Self(child)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let asked = self.0.stdin.take().is_some_and(|mut input| input.write_all(b"enough\n").is_ok());
        let ended = self.0.wait();
        if !std::thread::panicking() {
            assert!(asked && ended.expect("ends").success(), "the stranger met no error");
        }
    }
}

impl World {
    pub(crate) fn on_a_file() -> Self {
        Self::at(Home::File(tempfile::tempdir().expect("a folder")))
    }

    /// One after the other, of each release whose files are at hand.
    pub(crate) fn on_older_files() -> impl Iterator<Item = Self> {
        (0..RELEASES.len()).map(Self::on_older_file)
    }

    #[expect(clippy::print_stderr, reason = "a failure tells of which it is")]
    fn on_older_file(release: usize) -> Self {
        static EMPTIED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        let emptied = EMPTIED.get_or_init(|| RELEASES.into_iter().map(emptied).collect());
        eprintln!("on a file of release {}", RELEASES[release]);
        let folder = tempfile::tempdir().expect("a folder");
        #[expect(clippy::disallowed_methods, reason = "nobody has the file open")]
        std::fs::write(folder.path().join("state.db"), &emptied[release]).expect("writes");
        Self { release: Some(release), ..Self::at(Home::File(folder)) }
    }

    pub(crate) fn is_older(&self) -> bool {
        self.release.is_some()
    }

    pub(crate) fn beside_a_writer() -> Self {
        let world = Self::on_a_file();
        Self { _writer: Some(Writer::beside(world.db.path())), ..world }
    }

    pub(crate) fn on_a_file_with_pairs() -> Self {
        Self::at(Home::FileWithPairs(tempfile::tempdir().expect("a folder")))
    }

    /// `None`, after saying so, where there is no server.
    #[cfg(feature = "postgres")]
    pub(crate) fn on_a_server() -> Option<Self> {
        Some(Self::at(Home::Server(shared()?.fresh())))
    }

    fn at(home: Home) -> Self {
        Self { db: home.open(), home, release: None, _writer: None }
    }

    /// An empty store of the same kind.
    pub(crate) fn another_store(&self) -> Self {
        match &self.home {
            Home::File(_) => self.release.map_or_else(Self::on_a_file, Self::on_older_file),
            Home::FileWithPairs(_) => Self::on_a_file_with_pairs(),
            #[cfg(feature = "postgres")]
            Home::Server(_) => Self::on_a_server().expect("there is one"),
            #[cfg(not(feature = "postgres"))]
            Home::Server(_) => unreachable!("no server without the engine for it"),
        }
    }

    /// With a session `s`.
    pub(crate) fn with_session(self) -> Self {
        self.db.create_session(NewSession::new("s", "cli").model("large-1")).expect("creates");
        self
    }

    /// A handle that only looks.
    pub(crate) fn looking(&self) -> SessionDb {
        match &self.home {
            Home::File(folder) | Home::FileWithPairs(folder) => {
                SessionDb::open_read_only(folder.path().join("state.db"))
            }
            Home::Server(space) => SessionDb::open_read_only(space.url()),
        }
        .expect("opens")
    }

    /// Another handle that reads and writes.
    pub(crate) fn another(&self) -> SessionDb {
        self.home.open()
    }

    /// Changes the store while no handle is open, as another program would, and opens it again.
    pub(crate) fn behind_its_back(&mut self, sql: &str) {
        self.db.close().expect("closes");
        match &self.home {
            Home::File(folder) | Home::FileWithPairs(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join("state.db")).expect("opens");
                connection.execute_batch(sql).expect("changes");
            }
            Home::Server(space) => drop(space.psql(sql)),
        }
        self.db = self.home.open();
    }

    /// What a query gives another program that looks at the store: one value as text.
    pub(crate) fn seen_from_outside(&self, sql: &str) -> String {
        match &self.home {
            // Never with the SQLite of this process: it would take the store's descriptors for its own.
            Home::File(_) | Home::FileWithPairs(_) => {
                let script = "import sqlite3, sys\n\
                    print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()[0], end='')";
                let output = Command::new("python3").args(["-c", script]).arg(self.db.path()).arg(sql).output();
                String::from_utf8(output.expect("python3 is installed").stdout).expect("text")
            }
            Home::Server(space) => space.psql(sql).trim_end().to_owned(),
        }
    }
}

impl Deref for World {
    type Target = SessionDb;
    fn deref(&self) -> &SessionDb {
        &self.db
    }
}
