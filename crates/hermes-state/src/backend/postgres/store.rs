//! One open store of this process on a server: its writing thread and its readers. All handles on the same location
//! share it, which is what lets their writes be committed together.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::connect::Role;
use super::doctor;
use super::engine::PostgresEngine;
use super::maintenance;
use super::readers::Readers;
use super::schema::{self, Inspection};
use super::session::Session;
use super::status;
use super::url::Address;
use crate::backend::Opening;
use crate::backend::sqlite::lock::{PerProcess, be_ready_for_forks, while_not_forking};
use crate::doctor::ServerExamination;
use crate::error::{Error, Holder, Result, ServerTrouble};
use crate::gate::{Gate, Interrupt};
use crate::op::Write;
use crate::status::{EngineStatus, Status, User};
use crate::transaction::Transaction;

/// The stores this process has open, by location and whether they are only looked at.
static OPEN: PerProcess<Mutex<HashMap<(String, bool), Slot>>> = PerProcess::new(Mutex::default);

/// One location's entry, locked while it is being opened.
type Slot = Arc<Mutex<Weak<Store>>>;

/// How long an opening tries a server that is not to be reached at all: it may just be coming back, but mostly the
/// location is wrong, and then people want to know.
const REACHING: Duration = Duration::from_secs(4);

/// How long a read waits for a server that cannot be reached.
const READING: Duration = Duration::from_secs(20);

/// How long a vacuum of all tables may take.
const VACUUMING: Duration = Duration::from_secs(3600);

/// An open store.
pub(crate) struct Store {
    address: Arc<Address>,
    path: PathBuf,
    readers: Arc<Readers>,
    access: Access,
}

enum Access {
    Write {
        gate: Arc<Gate<PostgresEngine>>,
        closed: Mutex<Receiver<()>>,
    },
    Look,
    /// The schema is of a release with this newer version.
    TooNew {
        found: i64,
        supported: i64,
    },
}

fn address(location: &Path) -> Result<Address> {
    let refused = |trouble| Error::Server { path: "postgresql://…".into(), trouble };
    let url = location.to_str().ok_or_else(|| refused(ServerTrouble::BadUrl("the URL is not valid UTF-8".into())))?;
    Address::parse(url).map_err(refused)
}

/// The URL without its password.
pub(crate) fn identify(location: &Path) -> Result<PathBuf> {
    address(location).map(|address| PathBuf::from(address.to_string()))
}

impl Store {
    /// Opens the store at `location`, or joins the one that this process has open there.
    pub(crate) fn open(location: &Path, opening: &Opening) -> Result<Arc<Self>> {
        be_ready_for_forks();
        let mut address = address(location)?;
        if let Some(password) = &opening.password {
            address = address.with_password(password);
        }
        let slot = {
            let mut open = OPEN.get().lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || slot.lock().is_ok_and(|store| store.strong_count() > 0)
            });
            open.entry((address.key(), opening.read_only)).or_default().clone()
        };
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = known.upgrade() {
            return Ok(store);
        }
        let store = Arc::new(Self::open_new(Arc::new(address), opening)?);
        *known = Arc::downgrade(&store);
        Ok(store)
    }

    fn open_new(address: Arc<Address>, opening: &Opening) -> Result<Self> {
        let path = PathBuf::from(address.to_string());
        let readers = Readers::new(address.clone());
        let patience = opening.patience;
        if opening.read_only {
            let found = readers.run(move |reader, reply| reply(inspect(&mut reader.session, patience)))?;
            let access = match found {
                Inspection::UpToDate | Inspection::Older => Access::Look,
                Inspection::TooNew { found, supported } => Access::TooNew { found, supported },
            };
            return Ok(Self { address, path, readers, access });
        }
        let gate = Arc::new(Gate::new());
        let (report, opened) = sync_channel(1);
        let (close, closed) = sync_channel(1);
        let (served, at) = (gate.clone(), address.clone());
        let started = while_not_forking(|| {
            thread::Builder::new().name("hermes-writer".into()).spawn(move || {
                match open_to_write(at, patience) {
                    Ok((mut engine, Inspection::UpToDate)) => {
                        let _ = report.send(Ok(Inspection::UpToDate));
                        served.serve(&mut engine);
                    }
                    Ok((_, newer)) => drop(report.send(Ok(newer))),
                    Err(error) => drop(report.send(Err(error))),
                }
                let _ = close.send(());
            })
        });
        let no_thread =
            |why: &str| Error::Engine { message: format!("no thread to write to the server: {why}"), code: 0 };
        started.map_err(|error| no_thread(&error.to_string()))?;
        let access = match opened.recv().map_err(|_| no_thread("it ended while opening"))?? {
            Inspection::TooNew { found, supported } => Access::TooNew { found, supported },
            Inspection::UpToDate | Inspection::Older => Access::Write { gate, closed: Mutex::new(closed) },
        };
        Ok(Self { address, path, readers, access })
    }

    /// The URL without its password.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `read` in one read transaction on a connection of its own.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.read(READING, read)
    }

    /// As [`read`](Store::read), with that time for each query.
    pub(crate) fn read_at_length<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.read_at_length(READING, read)
    }

    /// Commits a write; returns when it is durable.
    pub(crate) fn write<W: Write>(
        &self,
        id: Uuid,
        write: W,
        patience: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<W::Answer> {
        // Who is in the way on a server only the connection that waits can ask; the error of a patience that is over says it.
        self.gate()?.write(id, write, patience, interrupt, &|_| true)
    }

    /// The server sees to its log by itself.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.check_writable()
    }

    /// The server gives the space of what was deleted to what comes by itself.
    pub(crate) fn release_space(&self) -> Result<(u64, u64)> {
        self.check_writable()?;
        let bytes = match self.status()?.engine {
            EngineStatus::Server { bytes, .. } => bytes,
            EngineStatus::File { .. } => 0,
        };
        Ok((bytes, bytes))
    }

    /// Has the server vacuum the schema's tables, as far as this user may; returns their bytes before and after.
    pub(crate) fn vacuum(&self) -> Result<(u64, u64)> {
        self.check_writable()?;
        let address = self.address.clone();
        self.readers.run(move |reader, reply| {
            let done = reach(&mut reader.session, Instant::now(), READING).and_then(|()| {
                let deadline = Instant::now() + VACUUMING;
                reader.session.directly(deadline, async |client| maintenance::vacuum(client, &address).await)
            });
            reply(done);
        })
    }

    /// Who is connected, as far as the server shows.
    pub(crate) fn users(&self) -> Result<Vec<User>> {
        Ok(self.status()?.open_by)
    }

    /// How the store stands.
    pub(crate) fn status(&self) -> Result<Status> {
        let (address, read_only) = (self.address.clone(), self.gate().is_err());
        self.readers.run(move |reader, reply| {
            let asked = asking(&mut reader.session, READING, |session, deadline| {
                session.directly(deadline, async |client| status::read(client, &address, read_only).await)
            });
            reply(asked);
        })
    }

    /// What an examination asks of the server.
    pub(crate) fn examine(&self) -> Result<ServerExamination> {
        self.readers.run(move |reader, reply| {
            let asked = asking(&mut reader.session, READING, |session, deadline| {
                session.directly(deadline, async |client| doctor::ask(client).await)
            });
            reply(asked);
        })
    }

    /// The error with which a write would be refused at once, if one would.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.gate().map(drop)
    }

    /// There is no lock on the whole of a store.
    pub(crate) fn write_lock_holder(&self) -> Option<Holder> {
        None
    }

    fn gate(&self) -> Result<&Gate<PostgresEngine>> {
        match &self.access {
            Access::Write { gate, .. } => Ok(gate),
            Access::Look => Err(Error::ReadOnly { path: self.path.clone() }),
            Access::TooNew { found, supported } => {
                Err(Error::TooNew { path: self.path.clone(), found: *found, supported: *supported })
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.readers.close();
        if let Access::Write { gate, closed } = &self.access {
            gate.close();
            let _ = closed.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}

/// Connects for an opening: what does not pass is an error at once, a server that is coming up is waited for with
/// patience, one that is not to be reached a short while.
fn reach(session: &mut Session, started: Instant, patience: Duration) -> Result<()> {
    loop {
        let now = Instant::now();
        let slice = now + Duration::from_millis(50);
        if session.connect(slice.min(started + patience).max(now + Duration::from_millis(1)))? {
            return Ok(());
        }
        let trouble = session.absence().and_then(|absence| absence.trouble.clone());
        let patience = match &trouble {
            Some(ServerTrouble::Unavailable { .. }) | None => patience,
            Some(_) => REACHING.min(patience),
        };
        if started.elapsed() >= patience {
            return Err(match trouble {
                Some(trouble) => Error::Server { path: session.path(), trouble },
                None => session.unreachable(false),
            });
        }
    }
}

/// Runs what has to be asked outside of the store's transactions, again as long as there is patience when the connection breaks or others are in the
/// way.
fn asking<T>(session: &mut Session, patience: Duration, ask: impl Fn(&mut Session, Instant) -> Result<T>) -> Result<T> {
    let started = Instant::now();
    loop {
        reach(session, started, patience)?;
        let deadline = (started + patience).max(Instant::now() + Duration::from_secs(1));
        match ask(session, deadline) {
            Err(_) if session.is_passing() && started.elapsed() < patience => {}
            outcome => return outcome,
        }
    }
}

fn inspect(session: &mut Session, patience: Duration) -> Result<Inspection> {
    let address = session.address().clone();
    asking(session, patience, |session, deadline| {
        session.directly(deadline, async |client| schema::inspect_only(client, &address).await)
    })
}

fn open_to_write(address: Arc<Address>, patience: Duration) -> Result<(PostgresEngine, Inspection)> {
    let mut session = Session::new(address.clone(), Role::Writer)?;
    let found = asking(&mut session, patience, |session, deadline| {
        session.directly(deadline, async |client| schema::bring_up_to_date(client, &address).await)
    })?;
    Ok((PostgresEngine::new(session), found))
}
