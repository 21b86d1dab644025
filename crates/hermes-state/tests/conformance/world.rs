//! A store on one of the engines, made for one test.

use std::ops::Deref;
use std::process::Command;

use hermes_state::{NewSession, SessionDb};
use hermes_state_testkit::Space;
#[cfg(feature = "postgres")]
use hermes_state_testkit::shared;

/// Defines, for each of these functions, a test on a file and one on a server.
macro_rules! on_each_engine {
    ($($name:ident)*) => {
        mod on_a_file {
            $(#[test] fn $name() { super::$name($crate::world::World::on_a_file()); })*
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

pub(crate) struct World {
    db: SessionDb,
    home: Home,
}

enum Home {
    File(tempfile::TempDir),
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "there is only the file"))]
    Server(Space),
}

impl Home {
    fn open(&self) -> SessionDb {
        match self {
            Home::File(folder) => SessionDb::open(folder.path().join("state.db")),
            Home::Server(space) => SessionDb::open(space.url()),
        }
        .expect("opens")
    }
}

impl World {
    pub(crate) fn on_a_file() -> Self {
        Self::at(Home::File(tempfile::tempdir().expect("a folder")))
    }

    /// `None`, after saying so, where there is no server.
    #[cfg(feature = "postgres")]
    pub(crate) fn on_a_server() -> Option<Self> {
        Some(Self::at(Home::Server(shared()?.fresh())))
    }

    fn at(home: Home) -> Self {
        Self { db: home.open(), home }
    }

    /// With a session `s`.
    pub(crate) fn with_session(self) -> Self {
        self.db.create_session(NewSession::new("s", "cli").model("large-1")).expect("creates");
        self
    }

    /// A handle that only looks.
    pub(crate) fn looking(&self) -> SessionDb {
        match &self.home {
            Home::File(folder) => SessionDb::open_read_only(folder.path().join("state.db")),
            Home::Server(space) => SessionDb::open_read_only(space.url()),
        }
        .expect("opens")
    }

    /// Changes the store while no handle is open, as another program would, and opens it again.
    pub(crate) fn behind_its_back(&mut self, sql: &str) {
        self.db.close().expect("closes");
        match &self.home {
            Home::File(folder) => {
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
            Home::File(_) => {
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
