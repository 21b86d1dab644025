//! One connection to a server on one thread, as a transaction sees it: statements are sent without waiting and their
//! answers read when somebody asks, so that what needs no answer costs no round trip.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::future::{Either, select};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, RowStream, Statement};

use super::connect::{self, ConnectError, Connected, Ending, Role, Traffic};
use super::errors::{Failure, classify};
use super::placeholders::translate;
use super::url::Address;
use super::values::{Bound, row_values};
use super::watch::{Unanswered, watch};
use crate::error::{Error, Holder, Result, ServerTrouble};
use crate::value::{Columns, Value};

/// Who was seen in the way so short a time ago is taken to be still there.
const STILL: Duration = Duration::from_secs(3);

/// How long the end of a transaction that is given up is waited for.
const UNDOING: Duration = Duration::from_secs(1);

/// A server that is not to be reached is asked again after this pause, then after longer ones.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

type Asked = std::result::Result<(Vec<Row>, u64), tokio_postgres::Error>;
type Connecting = Pin<Box<dyn Future<Output = Result<Connected, ConnectError>>>>;

/// A statement on its way.
struct InFlight {
    number: u64,
    answer: Pin<Box<dyn Future<Output = Asked>>>,
    /// Its answer, once it is there.
    done: Option<Asked>,
}

/// The connection, while there is one.
struct Link {
    client: Arc<Client>,
    ending: Ending,
    _traffic: Traffic,
    statements: HashMap<String, Statement>,
    in_flight: Vec<InFlight>,
    /// The server's process that serves us.
    server_process: i32,
}

/// What has been seen of a server that cannot be reached.
#[derive(Debug, Clone)]
pub(super) struct Absence {
    pub(super) since: Instant,
    pub(super) message: String,
    /// The error with which an opening reports it.
    pub(super) trouble: Option<ServerTrouble>,
}

/// What passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// There is no connection.
    Lost,
    /// The server undid the transaction in favour of another.
    Conflict,
    /// Somebody held a lock for too long.
    Locked,
}

/// A connection with its thread's runtime.
pub(super) struct Session {
    address: Arc<Address>,
    role: Role,
    link: Option<Link>,
    connecting: Option<Connecting>,
    absence: Option<Absence>,
    pause: Duration,
    sent: u64,
    /// Until when answers are waited for.
    deadline: Instant,
    /// Why the transaction is over, if it is for a reason that passes.
    passing: Option<Passing>,
    /// Whether what failed last was answered so by the server.
    refused: bool,
    /// Who was seen in the way of a statement, and when.
    holder: Option<(Holder, Instant)>,
    /// The last field: connections are dropped before what drives them.
    runtime: Background,
}

/// A runtime that does not wait for what it has running when it is dropped: a name that is still being looked up must
/// not hold up a store that closes.
struct Background(Option<Runtime>);

impl std::ops::Deref for Background {
    type Target = Runtime;
    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("taken only when it is dropped")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Session {
    /// A session without a connection yet. Everything of it happens on the thread that makes it.
    pub(super) fn new(address: Arc<Address>, role: Role) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(|error| {
            Error::Engine { message: format!("no runtime for the connection to the server: {error}"), code: 0 }
        })?;
        Ok(Self {
            runtime: Background(Some(runtime)),
            address,
            role,
            link: None,
            connecting: None,
            absence: None,
            pause: PAUSE,
            sent: 0,
            deadline: Instant::now(),
            passing: None,
            refused: false,
            holder: None,
        })
    }

    pub(super) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    /// Has a connection, makes one, or is still at it when `until` comes: `false`. What does not pass is an error.
    pub(super) fn connect(&mut self, until: Instant) -> Result<bool> {
        self.look();
        if self.link.as_ref().is_some_and(|link| link.client.is_closed()) {
            self.lose("the connection was closed");
        }
        while self.link.is_none() {
            let (address, role) = (self.address.clone(), self.role);
            let connecting =
                self.connecting.get_or_insert_with(|| Box::pin(async move { connect::connect(&address, role).await }));
            let made =
                self.runtime.block_on(async { tokio::time::timeout_at(until.into(), connecting.as_mut()).await });
            let Ok(made) = made else { return Ok(false) };
            self.connecting = None;
            match made {
                Ok(connected) => {
                    self.link = Some(Link {
                        client: Arc::new(connected.client),
                        ending: connected.ending,
                        _traffic: connected.traffic,
                        server_process: connected.pid,
                        statements: HashMap::new(),
                        in_flight: Vec::new(),
                    });
                    self.absence = None;
                    self.pause = PAUSE;
                }
                Err(ConnectError::Permanent(trouble)) => {
                    return Err(Error::Server { path: self.address.to_string().into(), trouble });
                }
                Err(ConnectError::Transient { trouble, message }) => {
                    self.be_absent(message, Some(trouble));
                    let now = Instant::now();
                    if now >= until {
                        return Ok(false);
                    }
                    std::thread::sleep(self.pause.min(until - now));
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        Ok(true)
    }

    fn be_absent(&mut self, message: String, trouble: Option<ServerTrouble>) {
        let since = self.absence.as_ref().map_or_else(Instant::now, |absence| absence.since);
        self.absence = Some(Absence { since, message, trouble });
    }

    /// What was seen last of a server that cannot be reached.
    pub(super) fn absence(&self) -> Option<&Absence> {
        self.absence.as_ref()
    }

    /// Gives the connection up. What the server said at its end tells more than the statement that found it so.
    fn lose(&mut self, seen: &str) {
        let told = self.link.take().and_then(|link| link.ending.told());
        self.let_go();
        self.be_absent(told.unwrap_or_else(|| seen.to_owned()), None);
    }

    /// Has what has happened to the connection be noticed, which nothing else does while nothing is waited for. A runtime
    /// that is yielded to looks at its sockets, and then runs what waits for them.
    fn look(&self) {
        if self.link.is_some() {
            self.let_go();
        }
    }

    /// Lets connections end that were dropped: they do when the runtime runs.
    fn let_go(&self) {
        self.runtime.block_on(async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        });
    }

    /// Waits for an answer as long as it is worth it. Meanwhile the server is asked what becomes of it.
    fn attend<T>(&mut self, answer: impl AsyncFnOnce(&mut Link) -> T) -> Result<T> {
        let Some(link) = &mut self.link else { return Err(self.lost()) };
        let (process, deadline) = (link.server_process, self.deadline);
        let (address, holder) = (&*self.address, &mut self.holder);
        let started = Instant::now();
        let outcome = self.runtime.block_on(async {
            let answer = std::pin::pin!(answer(link));
            let watch = std::pin::pin!(watch(address, process, deadline, holder));
            match select(answer, watch).await {
                Either::Left((answer, _)) => Ok(answer),
                Either::Right((why, _)) => Err(why),
            }
        });
        if started.elapsed() > STILL / 10 {
            // The watch may have made a connection.
            self.let_go();
        }
        outcome.map_err(|why| self.unanswered(&why))
    }

    /// The connection is given up with what is on its way: nobody will wait for it.
    fn unanswered(&mut self, why: &Unanswered) -> Error {
        match why {
            Unanswered::Late if self.holder().is_some() => {
                self.passing = Some(Passing::Locked);
                self.link = None;
                self.let_go();
                self.locked()
            }
            Unanswered::Late => {
                self.lose("the server does not answer");
                self.lost()
            }
            Unanswered::Dead(seen) => {
                self.lose(seen);
                self.lost()
            }
        }
    }

    /// Runs `ask` on the connection, outside of any transaction of ours; its answer is waited for until `deadline`.
    pub(super) fn directly<T, E: Into<Asking>>(
        &mut self,
        deadline: Instant,
        ask: impl AsyncFnOnce(&mut Client) -> std::result::Result<T, E>,
    ) -> Result<T> {
        self.deadline = deadline;
        self.passing = None;
        let answer = self.attend(async |link| match Arc::get_mut(&mut link.client) {
            Some(client) => Some(ask(client).await),
            None => None,
        })?;
        let Some(answer) = answer else { return Err(self.lost()) };
        answer.map_err(|error| match error.into() {
            Asking::Driver(error) => self.failed(&error),
            Asking::Failed(failure) => self.failure(failure),
        })
    }

    /// Begins a transaction with this statement, which travels with the first one after it. Answers are waited for until
    /// `deadline`.
    pub(super) fn begin(&mut self, statement: &str, deadline: Instant) -> Result<()> {
        self.deadline = deadline;
        self.passing = None;
        self.send_batch(statement)
    }

    /// Has answers waited for until `deadline` from now on.
    pub(super) fn wait_until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Whether the transaction came to an end that passes and has nothing to do with what it did.
    pub(super) fn is_passing(&self) -> bool {
        self.passing.is_some()
    }

    /// Whether it had to make way for another transaction.
    pub(super) fn has_conflicted(&self) -> bool {
        self.passing == Some(Passing::Conflict)
    }

    /// Whether it waited too long for somebody's lock.
    pub(super) fn is_locked(&self) -> bool {
        self.passing == Some(Passing::Locked)
    }

    /// Who was in the way of a statement just now, if one was seen.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.holder.as_ref().filter(|(_, seen)| seen.elapsed() < STILL).map(|(holder, _)| holder.clone())
    }

    /// The server's process at the other end, while there is a connection.
    pub(super) fn server_process(&self) -> Option<i32> {
        self.link.as_ref().map(|link| link.server_process)
    }

    /// Ends the transaction with COMMIT; everything sent before is answered when this returns. If it fails, `unseen` says
    /// whether the server may have committed all the same.
    pub(super) fn commit(&mut self, unseen: &mut bool) -> Result<()> {
        if self.link.as_ref().is_none_or(|link| link.client.is_closed()) {
            self.lose("the connection was closed");
            return Err(self.lost());
        }
        self.send_batch("COMMIT")?;
        self.see_commit(Ok(()), unseen)
    }

    /// Waits for the end of a COMMIT that was sent, as [`commit`](Session::commit). If the server refused a statement before
    /// it, that was the end of the transaction.
    pub(super) fn see_commit(&mut self, answered: Result<()>, unseen: &mut bool) -> Result<()> {
        if answered.is_err() && self.refused {
            *unseen = false;
            return answered;
        }
        let ended = answered.and_then(|()| self.receive_all());
        // A server that answers has not committed: the transaction had failed, or does so now.
        *unseen = ended.is_err() && self.link.is_none();
        self.holder = None;
        ended
    }

    /// Ends the transaction with ROLLBACK, whatever became of it.
    pub(super) fn rollback(&mut self) {
        let passing = self.passing;
        // A server that does not answer this soon is given up: the end of the connection undoes it as well.
        self.deadline = Instant::now() + UNDOING;
        while self.link.is_some() && self.receive_all().is_err() {}
        if self.link.is_some() {
            // An error means that the connection is gone, and with it the transaction.
            let _ = self.send_batch("ROLLBACK").and_then(|()| self.receive_all());
        }
        self.passing = passing;
    }

    /// Sends statements without parameters or rows.
    pub(super) fn send_batch(&mut self, statements: &str) -> Result<()> {
        let statements = statements.to_owned();
        self.launch(|client| async move { client.batch_execute(&statements).await.map(|()| (Vec::new(), 0)) })?;
        Ok(())
    }

    /// Has the server wait for the next statement of this transaction although it will be long in coming.
    pub(super) fn allow_idleness(&mut self) -> Result<()> {
        self.send_batch("SET LOCAL idle_in_transaction_session_timeout = '10min'")?;
        self.wait(None)
    }

    /// Puts rows into a table by COPY.
    pub(super) fn copy_rows(&mut self, table: &str, columns: &str, rows: &[Vec<&Value>]) -> Result<()> {
        let described = self.prepared(&format!("SELECT {columns} FROM {table} LIMIT 0"))?;
        let types: Vec<Type> = described.columns().iter().map(|column| column.type_().clone()).collect();
        let copy = self.prepared(&format!("COPY {table} ({columns}) FROM STDIN (FORMAT binary)"))?;
        self.wait(None)?;
        let copied = self.attend(async |link| {
            let mut writer = std::pin::pin!(BinaryCopyInWriter::new(link.client.copy_in(&copy).await?, &types));
            for row in rows {
                let bound: Vec<Bound<'_>> = row.iter().map(|value| Bound(value)).collect();
                writer.as_mut().write_raw(bound.iter().map(|value| value as &(dyn ToSql + Sync))).await?;
            }
            writer.finish().await
        })?;
        copied.map(drop).map_err(|error| self.failed(&error))
    }

    /// Sends a statement with parameters of the driver's own types.
    pub(super) fn send_native(&mut self, sql: &str, parameters: Vec<Box<dyn ToSql + Sync>>) -> Result<u64> {
        let statement = self.prepared(sql)?;
        self.launch(|client| async move {
            let borrowed = parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync));
            collect(client.query_raw(&statement, borrowed.collect::<Vec<_>>()).await?).await
        })
    }

    /// Sends a statement; [`receive`](Session::receive) gives its rows.
    pub(super) fn send(&mut self, sql: &str, parameters: &[Value]) -> Result<u64> {
        let statement = self.prepared(sql)?;
        let parameters: Vec<Value> = parameters.to_vec();
        self.launch(|client| async move {
            let bound: Vec<_> = parameters.iter().map(Bound).collect();
            collect(
                client
                    .query_raw(
                        &statement,
                        bound.iter().map(|parameter| parameter as &(dyn ToSql + Sync)).collect::<Vec<_>>(),
                    )
                    .await?,
            )
            .await
        })
    }

    /// Puts a request on its way: it is handed to the connection at once, so that requests keep their order.
    fn launch<F: Future<Output = Asked> + 'static>(&mut self, request: impl FnOnce(Arc<Client>) -> F) -> Result<u64> {
        self.sent += 1;
        let number = self.sent;
        let Some(link) = &mut self.link else { return Err(self.lost()) };
        let mut answer: Pin<Box<dyn Future<Output = Asked>>> = Box::pin(request(link.client.clone()));
        let done = self.runtime.block_on(poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => Poll::Ready(None),
        }));
        link.in_flight.push(InFlight { number, answer, done });
        Ok(number)
    }

    /// The values of rows.
    pub(super) fn values(&mut self, rows: &[Row]) -> Result<Vec<Vec<Value>>> {
        rows.iter().map(row_values).collect::<std::result::Result<_, _>>().map_err(|error| self.failed(&error))
    }

    /// The rows of a statement that was sent, and how many it changed. If one before it failed, that is the answer.
    pub(super) fn receive(&mut self, number: u64) -> Result<(Vec<Row>, u64)> {
        self.wait(Some(number))?;
        let Some(link) = &mut self.link else { return Err(self.lost()) };
        let asked = link.in_flight.iter().position(|asked| asked.number == number);
        match asked.and_then(|at| link.in_flight.remove(at).done) {
            Some(Ok(answer)) => Ok(answer),
            _ => Err(Error::Engine { message: "an answer was asked for twice".into(), code: 0 }),
        }
    }

    /// Waits for the answers of everything that was sent; the rows are let go.
    pub(super) fn receive_all(&mut self) -> Result<()> {
        self.wait(None)?;
        if let Some(link) = &mut self.link {
            link.in_flight.clear();
        }
        Ok(())
    }

    /// Waits for the answer of one statement, or of all, and of those before it. The first that failed is the error.
    fn wait(&mut self, number: Option<u64>) -> Result<()> {
        self.attend(async |link| answers(&mut link.in_flight, number).await)?;
        let Some(link) = &mut self.link else { return Err(self.lost()) };
        let upto = number.unwrap_or(u64::MAX);
        let failed = link.in_flight.iter().position(|asked| asked.number <= upto && matches!(asked.done, Some(Err(_))));
        match failed.and_then(|at| link.in_flight.remove(at).done) {
            Some(Err(error)) => Err(self.failed(&error)),
            _ => Ok(()),
        }
    }

    /// Runs a query and hands over its rows as they come, so that a long result is never in memory as a whole.
    pub(super) fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<Columns> {
        let statement = self.prepared(sql)?;
        let columns = statement.columns().iter().map(|column| Box::from(column.name())).collect();
        let read = self.attend(async |link| {
            answers(&mut link.in_flight, None).await;
            let bound: Vec<_> = parameters.iter().map(Bound).collect();
            let bound = bound.iter().map(|parameter| parameter as &(dyn ToSql + Sync));
            let rows = link.client.query_raw(&statement, bound.collect::<Vec<_>>()).await?;
            let mut rows = std::pin::pin!(rows);
            while let Some(found) = rows.try_next().await? {
                let taken = row(row_values(&found)?);
                if taken.is_err() {
                    return Ok(taken);
                }
            }
            Ok(Ok(()))
        })?;
        // What was sent before may have failed, and is then why this did.
        self.wait(None)?;
        match read {
            Ok(taken) => taken.map(|()| columns),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// The statement as the server knows it.
    fn prepared(&mut self, sql: &str) -> Result<Statement> {
        let Some(link) = &mut self.link else { return Err(self.lost()) };
        if let Some(statement) = link.statements.get(sql) {
            return Ok(statement.clone());
        }
        // Only a transaction that still stands can prepare, so what was sent before comes first.
        self.wait(None)?;
        let text = translate(sql).into_owned();
        let statement = match self.attend(async |link| link.client.prepare(&text).await)? {
            Ok(statement) => statement,
            Err(error) => return Err(self.failed(&error)),
        };
        if let Some(link) = &mut self.link {
            link.statements.insert(sql.to_owned(), statement.clone());
        }
        Ok(statement)
    }

    fn failed(&mut self, error: &tokio_postgres::Error) -> Error {
        self.refused = error.as_db_error().is_some();
        let failure = classify(&self.address, error);
        self.failure(failure)
    }

    fn failure(&mut self, failure: Failure) -> Error {
        match failure {
            Failure::Failed(error) => error,
            Failure::Lost(message) => {
                self.lose(&message);
                self.lost()
            }
            Failure::Retry => {
                self.passing = Some(Passing::Conflict);
                self.locked()
            }
            Failure::Locked => {
                self.passing = Some(Passing::Locked);
                self.locked()
            }
        }
    }

    fn locked(&self) -> Error {
        Error::LockedOnServer { path: self.path(), waited: Duration::ZERO, holder: self.holder() }
    }

    /// The error for a connection that is not there.
    fn lost(&mut self) -> Error {
        self.passing = Some(Passing::Lost);
        self.unreachable(false)
    }

    pub(super) fn path(&self) -> std::path::PathBuf {
        self.address.to_string().into()
    }

    /// The error for a server that cannot be reached.
    pub(super) fn unreachable(&self, perhaps_stored: bool) -> Error {
        let (since, message) = match &self.absence {
            Some(absence) => (absence.since.elapsed(), absence.message.clone()),
            None => (Duration::ZERO, "the connection was lost".to_owned()),
        };
        Error::Unreachable { path: self.path(), since, message, perhaps_stored }
    }
}

/// What can go wrong when the server is asked directly.
pub(super) enum Asking {
    Driver(tokio_postgres::Error),
    Failed(Failure),
}

impl From<tokio_postgres::Error> for Asking {
    fn from(error: tokio_postgres::Error) -> Self {
        Asking::Driver(error)
    }
}

impl From<Failure> for Asking {
    fn from(failure: Failure) -> Self {
        Asking::Failed(failure)
    }
}

/// Waits for the answer of one statement, or of all; those of the others are kept as they come. A server answers in the
/// order of asking, so what comes after an answer that is missing need not be looked at.
async fn answers(in_flight: &mut [InFlight], number: Option<u64>) {
    poll_fn(|context| {
        for asked in in_flight.iter_mut().filter(|asked| asked.done.is_none()) {
            match asked.answer.as_mut().poll(context) {
                Poll::Ready(answer) => asked.done = Some(answer),
                Poll::Pending if number.is_none_or(|number| asked.number <= number) => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(())
    })
    .await;
}

async fn collect(rows: RowStream) -> Asked {
    let mut rows = std::pin::pin!(rows);
    let mut collected = Vec::new();
    while let Some(row) = rows.as_mut().try_next().await? {
        collected.push(row);
    }
    Ok((collected, rows.rows_affected().unwrap_or_default()))
}
