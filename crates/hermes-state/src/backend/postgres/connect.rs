//! One connection to the server: found, encrypted, logged in and set up, within the address's `connect_timeout`.

use std::error::Error as _;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tokio_postgres::config::SslMode as Encryption;
use tokio_postgres::error::DbError;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::errors::{io_error, text};
use super::tls::{Connector, Phase};
use super::url::{Address, Endpoint, Host, SslMode};
use crate::error::ServerTrouble;

/// The oldest server whose behaviour is known to serve.
const OLDEST: u32 = 140_000;

/// How long a write waits for a lock before its transaction is given up and tried anew. In between the writes whose
/// patience is over are answered, and withdrawn ones taken out.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// For writes: a server that only reads is passed over.
    Writer,
    /// For reads; the server refuses writes on it.
    Reader,
}

/// A connection that is ready for statements. Its traffic runs on the runtime that it was made on; dropping the client
/// ends it.
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// The server's process that serves it.
    pub(crate) pid: i32,
    pub(crate) ending: Ending,
    pub(crate) traffic: Traffic,
}

/// What carries a connection's traffic. Dropping it ends the connection whatever is still awaited on it, as soon as the
/// runtime runs again: the server is not to go on with a transaction that nobody will end.
#[derive(Debug)]
pub(crate) struct Traffic(tokio::task::AbortHandle);

impl Drop for Traffic {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a connection has ended, once it has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<Option<String>>>);

impl Ending {
    /// What the server said last. Statements only learn that the connection is closed.
    pub(crate) fn told(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectError {
    /// Waiting does not mend it.
    Permanent(ServerTrouble),
    /// It may come good: try again. `trouble` is what it is if it lasts, `message` what was seen.
    Transient { trouble: ServerTrouble, message: String },
}

#[cfg(test)]
impl ConnectError {
    /// What it is if it lasts.
    pub(super) fn trouble(self) -> ServerTrouble {
        match self {
            Self::Permanent(trouble) | Self::Transient { trouble, .. } => trouble,
        }
    }
}

fn transient(trouble: ServerTrouble) -> ConnectError {
    ConnectError::Transient { message: trouble.to_string(), trouble }
}

/// Makes a connection, trying the places of the address in turn. Each may use its share of the time that is left, so
/// that one that does not answer leaves some for the others.
///
/// # Errors
///
/// If no place serves: transient if any of the places may come good, and then of the last one that may.
pub(crate) async fn connect(address: &Address, role: Role) -> Result<Connected, ConnectError> {
    let deadline = Instant::now() + address.connect_timeout();
    let connector = Connector::new(address).map_err(ConnectError::Permanent)?;
    let mut endpoints: Vec<&Endpoint> = address.endpoints().iter().collect();
    if address.is_balanced() {
        shuffle(&mut endpoints);
    }
    let mut worst: Option<ConnectError> = None;
    for (index, endpoint) in endpoints.iter().enumerate() {
        let share = share(deadline, endpoints.len() - index);
        let attempt = Attempt {
            address,
            endpoint,
            role,
            connector: connector.clone(),
            at: endpoint.to_string(),
            barred: AtomicBool::new(false),
        };
        match timeout(share, attempt.run(Instant::now() + share)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => worst = Some(more_hopeful(worst, error)),
            Err(_) => worst = Some(more_hopeful(worst, attempt.no_answer())),
        }
    }
    Err(worst.unwrap_or_else(|| ConnectError::Permanent(ServerTrouble::BadUrl("the URL names no host".to_owned()))))
}

fn share(deadline: Instant, among: usize) -> Duration {
    deadline.saturating_duration_since(Instant::now()) / u32::try_from(among).unwrap_or(u32::MAX).max(1)
}

fn more_hopeful(before: Option<ConnectError>, now: ConnectError) -> ConnectError {
    match (before, now) {
        (Some(before @ ConnectError::Transient { .. }), ConnectError::Permanent(_)) => before,
        (Some(before @ ConnectError::Permanent(_)), ConnectError::Permanent(_)) => before,
        (_, now) => now,
    }
}

/// Puts a list in random order, by the random keys of a hasher.
fn shuffle<T>(list: &mut [T]) {
    for index in (1..list.len()).rev() {
        let other = RandomState::new().build_hasher().finish() % (index as u64 + 1);
        list.swap(index, other as usize);
    }
}

/// One place, with what is needed to try it.
struct Attempt<'a> {
    address: &'a Address,
    endpoint: &'a Endpoint,
    role: Role,
    connector: Connector,
    at: String,
    /// Whether the server's rules keep this kind of connection out, encrypted or not.
    barred: AtomicBool,
}

impl Attempt<'_> {
    async fn run(&self, deadline: Instant) -> Result<Connected, ConnectError> {
        let Host::Tcp { name, address } = &self.endpoint.host else {
            // As in libpq: nobody listens on a socket of this host, and servers do not encrypt there.
            return self.log_in(None, Encryption::Disable, share(deadline, 1)).await;
        };
        let addresses = match address.or_else(|| name.parse().ok()) {
            Some(address) => vec![address],
            None => self.look_up(name).await?,
        };
        let mut worst = None;
        for (index, address) in addresses.iter().enumerate() {
            let share = share(deadline, addresses.len() - index);
            match timeout(share, self.reach(*address, share)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => worst = Some(more_hopeful(worst, error)),
                Err(_) => worst = Some(more_hopeful(worst, self.no_answer())),
            }
        }
        Err(worst.unwrap_or_else(|| transient(ServerTrouble::UnknownHost { host: name.clone() })))
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let unknown = |message: String| ConnectError::Transient {
            trouble: ServerTrouble::UnknownHost { host: name.to_owned() },
            message: format!("the host {name} cannot be looked up ({message})"),
        };
        let found = tokio::net::lookup_host((name, self.endpoint.port)).await;
        let addresses: Vec<IpAddr> =
            found.map_err(|error| unknown(error.to_string()))?.map(|found| found.ip()).collect();
        if addresses.is_empty() { Err(unknown("it has no address".to_owned())) } else { Ok(addresses) }
    }

    /// Encrypts as `sslmode` says. `prefer` means to do without whenever encrypting is what fails: the handshake, or
    /// the server's rules for encrypted connections.
    async fn reach(&self, ip: IpAddr, share: Duration) -> Result<Connected, ConnectError> {
        let encryption = match self.address.ssl_mode() {
            SslMode::Disable => return self.log_in(Some(ip), Encryption::Disable, share).await,
            SslMode::Prefer => Encryption::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Encryption::Require,
        };
        let outcome = self.log_in(Some(ip), encryption, share).await;
        let tried = encryption == Encryption::Prefer && self.connector.phase() >= Phase::Handshake;
        match outcome {
            Err(ConnectError::Permanent(ServerTrouble::Tls(_))) if tried => {
                self.log_in(Some(ip), Encryption::Disable, share).await
            }
            Err(_) if tried && self.barred.load(Ordering::Relaxed) => {
                self.log_in(Some(ip), Encryption::Disable, share).await
            }
            outcome => outcome,
        }
    }

    async fn log_in(
        &self,
        ip: Option<IpAddr>,
        encryption: Encryption,
        share: Duration,
    ) -> Result<Connected, ConnectError> {
        let mut config = self.address.config();
        match &self.endpoint.host {
            Host::Tcp { name, .. } => config.host(name),
            Host::Unix(folder) => config.host_path(folder),
        };
        if let Some(ip) = ip {
            config.hostaddr(ip);
        }
        config.port(self.endpoint.port).ssl_mode(encryption).connect_timeout(share);
        self.connector.begin();
        let (client, connection) =
            config.connect(self.connector.clone()).await.map_err(|error| self.classify(encryption, &error))?;
        let ending = Ending::default();
        let last_words = ending.clone();
        let carrying = tokio::spawn(async move {
            let reason = match connection.await {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => text(&error),
            };
            *last_words.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        });
        let traffic = Traffic(carrying.abort_handle());
        let pid = self.set_up(&client, encryption).await?;
        Ok(Connected { client, pid, ending, traffic })
    }

    /// Sets the session up and asks what the server is, in one round trip. Returns the server's process.
    async fn set_up(&self, client: &Client, encryption: Encryption) -> Result<i32, ConnectError> {
        let answer = client.simple_query(&self.setup_sql()).await.map_err(|error| self.classify(encryption, &error))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let read = |column: &str| row.and_then(|row| row.try_get(column).ok().flatten()).unwrap_or("");
        if read("version_number").parse::<u32>().unwrap_or(0) < OLDEST {
            return Err(ConnectError::Permanent(ServerTrouble::TooOld { found: read("version").to_owned() }));
        }
        if read("encoding") != "UTF8" {
            return Err(ConnectError::Permanent(ServerTrouble::Encoding {
                database: self.address.database().to_owned(),
                found: read("encoding").to_owned(),
            }));
        }
        if self.role == Role::Writer && read("read_only") == "on" {
            return Err(transient(ServerTrouble::WrongServer {
                at: self.at.clone(),
                message: "it only reads, being a standby or set so".to_owned(),
            }));
        }
        Ok(read("pid").parse().unwrap_or(0))
    }

    fn setup_sql(&self) -> String {
        // `pg_catalog` is searched first without being named; the session's own tables come last, so that none of them
        // can stand in for one of the store's.
        let mut settings = vec![
            ("search_path", format!("\"{}\", pg_temp", self.address.schema())),
            ("client_encoding", "UTF8".to_owned()),
            ("standard_conforming_strings", "on".to_owned()),
            ("extra_float_digits", "1".to_owned()),
            ("bytea_output", "hex".to_owned()),
        ];
        // A process of ours that is stopped, or whose machine is gone, in the middle of a transaction holds up those who
        // want to write to the same session: for less than their patience.
        for (setting, value) in [("statement_timeout", "5min"), ("idle_in_transaction_session_timeout", "15s")] {
            if !self.address.sets(setting) {
                settings.push((setting, value.to_owned()));
            }
        }
        match self.role {
            // Compiling a plan takes longer than any of ours runs.
            Role::Reader => {
                settings.extend([("default_transaction_read_only", "on".to_owned()), ("jit", "off".to_owned())])
            }
            Role::Writer => settings.push(("lock_timeout", format!("{}ms", LOCK_TIMEOUT.as_millis()))),
        }
        let settings: Vec<String> =
            settings.iter().map(|(name, value)| format!("set_config('{name}', '{value}', false)")).collect();
        // Acknowledged means durable: a server or role that is set to answer before the log is written is overruled.
        format!(
            "SELECT current_setting('server_version_num') AS version_number, current_setting('server_version') AS version, \
             current_setting('server_encoding') AS encoding, current_setting('transaction_read_only') AS read_only, \
             pg_backend_pid() AS pid, {}, \
             CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END",
            settings.join(", ")
        )
    }

    fn no_answer(&self) -> ConnectError {
        let message = match self.connector.phase() {
            Phase::Calling => format!("{} does not answer", self.at),
            _ => format!("{} took the connection and then did not answer as a server should", self.at),
        };
        ConnectError::Transient { trouble: ServerTrouble::NoAnswer { at: self.at.clone() }, message }
    }

    fn unavailable(&self, message: String) -> ConnectError {
        transient(ServerTrouble::Unavailable { at: self.at.clone(), message })
    }

    fn classify(&self, encryption: Encryption, error: &tokio_postgres::Error) -> ConnectError {
        if let Some(answer) = error.as_db_error() {
            return self.classify_answer(answer);
        }
        let phase = self.connector.phase();
        if let Some(io) = io_error(error) {
            return self.classify_io(phase, io);
        }
        if error.is_closed() {
            return self.unavailable("it closed the connection".to_owned());
        }
        let permanent = |trouble| ConnectError::Permanent(trouble);
        match error.source() {
            // What the server's answers never lead to here, once it is connected: it declined to encrypt.
            Some(_) if phase == Phase::Connected && encryption == Encryption::Require => {
                permanent(ServerTrouble::NoTls)
            }
            // The client's own refusals while logging in: no password, no method in common.
            Some(source) => {
                permanent(ServerTrouble::Login { user: self.address.user().to_owned(), message: source.to_string() })
            }
            None => permanent(ServerTrouble::NotAServer { at: self.at.clone(), message: error.to_string() }),
        }
    }

    fn classify_io(&self, phase: Phase, error: &io::Error) -> ConnectError {
        use io::ErrorKind::*;
        let refused = || transient(ServerTrouble::Refused { at: self.at.clone() });
        match error.kind() {
            ConnectionRefused | NotFound => refused(),
            PermissionDenied if phase == Phase::Calling => refused(),
            // How `tokio_postgres` reports that `target_session_attrs` asks for another server.
            PermissionDenied => {
                transient(ServerTrouble::WrongServer { at: self.at.clone(), message: error.to_string() })
            }
            TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown => self.no_answer(),
            InvalidData | InvalidInput if phase == Phase::Handshake => {
                ConnectError::Permanent(ServerTrouble::Tls(error.to_string()))
            }
            InvalidData | InvalidInput => {
                ConnectError::Permanent(ServerTrouble::NotAServer { at: self.at.clone(), message: error.to_string() })
            }
            ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected | UnexpectedEof | Interrupted => {
                self.unavailable(error.to_string())
            }
            // It answers, but not so that it can be understood.
            _ => transient(ServerTrouble::NotAServer { at: self.at.clone(), message: error.to_string() }),
        }
    }

    fn classify_answer(&self, answer: &DbError) -> ConnectError {
        let message = answer.message().to_owned();
        let state = answer.code().code();
        let told = || format!("{message} (SQLSTATE {state})");
        self.barred.store(state == "28000", Ordering::Relaxed);
        match state {
            "3D000" => {
                ConnectError::Permanent(ServerTrouble::NoDatabase { database: self.address.database().to_owned() })
            }
            "28000" | "28P01" | "42501" => {
                ConnectError::Permanent(ServerTrouble::Login { user: self.address.user().to_owned(), message })
            }
            // What the URL's parameters ask for and the server, or a pooler before it, does not do.
            "08P01" => ConnectError::Permanent(ServerTrouble::BadUrl(told())),
            _ if ["22", "42", "0A"].iter().any(|class| state.starts_with(class)) => {
                ConnectError::Permanent(ServerTrouble::BadUrl(told()))
            }
            _ => self.unavailable(told()),
        }
    }
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
