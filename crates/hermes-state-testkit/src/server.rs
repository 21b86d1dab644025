//! A real PostgreSQL server that belongs to this process.

use std::ffi::OsStr;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::deadline::{wait_for, wait_until};
use crate::guarded::Guarded;
use crate::installation::{Installation, Missing, client};
use crate::reservation::{Reservation, reserve_port};
use crate::server_config::ServerConfig;
use crate::system_calls::{Signal, send_signal};
use crate::{certificate, process, url};

/// How long a server may take to come up, with its recovery, or down.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a cluster of its own in a temporary folder, on a port of its own.
///
/// It ends when it is dropped, or when this process dies by whatever means, and its folder with it. All methods take
/// `&self`, so that one thread may kill the server on which others work.
#[derive(Debug)]
pub struct Server {
    installation: Installation,
    account: Option<Account>,
    config: ServerConfig,
    folder: PathBuf,
    port: Reservation,
    postmaster: Mutex<Option<Guarded>>,
}

impl Server {
    /// Starts the usual server: on 127.0.0.1 only, trusts everybody there, no TLS, durable commits.
    ///
    /// # Errors
    ///
    /// [`Missing`] where no PostgreSQL is installed. One that is installed and does not start is a panic with its log.
    pub fn start() -> Result<Self, Missing> {
        Self::start_with(&ServerConfig::new())
    }

    /// Starts a server that differs from the usual one.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_with(config: &ServerConfig) -> Result<Self, Missing> {
        let installation = Installation::newest()?;
        let account = Account::of_servers();
        let folder = tempfile::Builder::new()
            .prefix("hermes-state-pg-")
            .tempdir_in(parent_folder())
            .unwrap_or_else(|error| panic!("no temporary folder for a server: {error}"));
        if let Some(account) = account {
            account.own(folder.path());
        }
        let server = Self {
            installation,
            account,
            config: config.clone(),
            // From here on its guards remove it, who live longer than this process may.
            folder: folder.keep(),
            port: reserve_port(),
            postmaster: Mutex::new(None),
        };
        let cluster = server.make_cluster();
        *server.postmaster() = Some(server.launch(cluster));
        if let Some(password) = &server.config.password {
            server.psql(&format!("ALTER ROLE postgres PASSWORD '{}'", password.replace('\'', "''")));
        }
        Ok(server)
    }

    /// The URL of the database `postgres`, for its superuser.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(IpAddr::from([127, 0, 0, 1]))
    }

    /// The same URL by another address of this machine, for who comes from outside ([`crate::Hosts`]).
    #[must_use]
    pub fn url_at(&self, address: IpAddr) -> String {
        let password = self.config.password.as_ref().map(|password| format!(":{}", url::escape(password)));
        let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        format!("postgresql://postgres{}@{host}:{}/postgres", password.unwrap_or_default(), self.port.number())
    }

    /// Where it listens, as `127.0.0.1:54321`.
    #[must_use]
    pub fn host_port(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// The certificate (PEM) that a client must trust to verify this server, if it speaks TLS ([`ServerConfig::tls`]).
    #[must_use]
    pub fn certificate_authority(&self) -> PathBuf {
        self.folder.join(certificate::AUTHORITY)
    }

    /// The process of the postmaster; `None` while the server is down.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        running(&mut self.postmaster()).map(|postmaster| postmaster.pid())
    }

    /// What it has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        read_text(&self.folder.join("log"))
    }

    /// The program `psql` of the server's version, which takes a URL as its argument.
    #[must_use]
    pub fn psql_program(&self) -> PathBuf {
        self.installation.program("psql")
    }

    /// Runs SQL as the superuser in the database `postgres`, each statement by itself, and gives what `psql` prints:
    /// rows as lines, columns with `|` between them.
    ///
    /// # Panics
    ///
    /// With the server's words when a statement fails.
    #[must_use = "what was read"]
    pub fn psql_in(&self, database: &str, sql: &str) -> String {
        let mut command = client(self.psql_program());
        command.arg("-h").arg(&self.folder).args([
            "-p",
            &self.port.number().to_string(),
            "-U",
            "postgres",
            "-d",
            database,
        ]);
        psql(command, sql).unwrap_or_else(|message| panic!("psql: {message}\nin: {sql}"))
    }

    /// [`Server::psql_in`] the database `postgres`.
    pub fn psql(&self, sql: &str) -> String {
        self.psql_in("postgres", sql)
    }

    /// Ends the postmaster and all its backends where they stand, as if the machine had lost its power, and returns when
    /// they are gone. Nothing happens if it is down.
    pub fn kill(&self) {
        let mut guarded = self.postmaster();
        let Some(postmaster) = running(&mut guarded) else { return };
        let pid = postmaster.pid();
        // Stopped first: it can neither start another backend nor do anything about those that die.
        signal(pid, Signal::Stop);
        assert!(wait_until(PATIENCE, || process::is_stopped(pid)), "the postmaster does not stop");
        let backends = process::children(pid);
        for backend in &backends {
            signal(*backend, Signal::Stop);
        }
        for ours in backends.iter().chain([&pid]) {
            signal(*ours, Signal::Kill);
        }
        postmaster.wait();
        assert!(
            wait_until(PATIENCE, || backends.iter().all(|backend| process::is_gone(*backend))),
            "backends of the killed postmaster do not end: {backends:?}"
        );
    }

    /// Shuts down fast: open transactions are rolled back, connections closed, everything written. Nothing happens if it
    /// is down.
    pub fn stop(&self) {
        self.shut_down(Signal::Interrupt);
    }

    /// Starts again on the same port and folder, after [`Server::stop`] if it runs, and returns when it has recovered and
    /// accepts connections.
    pub fn restart(&self) {
        self.stop();
        let mut guarded = self.postmaster();
        let before = guarded.take().expect("it was started once");
        *guarded = Some(self.launch(before));
    }

    fn postmaster(&self) -> MutexGuard<'_, Option<Guarded>> {
        // A test that panicked has not hurt it.
        self.postmaster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut_down(&self, how: Signal) {
        let mut guarded = self.postmaster();
        let Some(postmaster) = running(&mut guarded) else { return };
        signal(postmaster.pid(), how);
        if !wait_until(PATIENCE, || postmaster.ended().is_some()) {
            drop(guarded);
            self.kill();
        }
    }

    /// Makes the cluster and its configuration. Returns the process that made it, whose guard guards the folder.
    fn make_cluster(&self) -> Guarded {
        let data = self.data();
        let options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "-D"];
        let arguments: Vec<&OsStr> = options.iter().map(OsStr::new).chain([data.as_os_str()]).collect();
        let mut initdb = self.guarded("initdb", &arguments);
        let status = initdb.wait();
        assert!(status.success(), "initdb: {status}\n{}", self.log());
        if self.config.tls {
            certificate::make(&self.folder, self.account);
        }
        append_text(&data.join("postgresql.conf"), &self.config.postgresql_conf(&self.folder, self.port.number()));
        write_text(&data.join("pg_hba.conf"), &self.config.pg_hba_conf());
        initdb
    }

    /// Starts the postmaster and waits until it accepts connections. `before` is what guarded the folder until now.
    fn launch(&self, before: Guarded) -> Guarded {
        let deadline = Instant::now() + PATIENCE;
        let mut before = Some(before);
        loop {
            let log_before = self.log().len();
            let mut postmaster = self.guarded("postgres", &[OsStr::new("-D"), self.data().as_os_str()]);
            if let Some(before) = before.take() {
                before.keep_folder();
            }
            let Err(status) = self.wait_until_ready(&mut postmaster, deadline) else { return postmaster };
            let log = self.log();
            let log = log.get(log_before..).unwrap_or(&log);
            assert!(
                is_passing(log) && Instant::now() < deadline,
                "the server does not start: {}\n{log}",
                status.map_or_else(|| "it takes too long".to_owned(), |status| status.to_string())
            );
            before = Some(postmaster);
        }
    }

    /// Fails when the postmaster ends, with its status, or takes too long.
    fn wait_until_ready(&self, postmaster: &mut Guarded, deadline: Instant) -> Result<(), Option<ExitStatus>> {
        let file = self.data().join("postmaster.pid");
        let pid = postmaster.pid().to_string();
        wait_for(deadline.saturating_duration_since(Instant::now()), || {
            if let Some(status) = postmaster.ended() {
                return Some(Err(Some(status)));
            }
            let text = read_text(&file);
            let mut lines = text.lines().map(str::trim);
            // The file of a killed predecessor says ready, too.
            let ours = lines.next() == Some(&pid);
            // The eighth line is the one that `pg_ctl -w` waits for.
            (ours && lines.nth(6) == Some("ready")).then_some(Ok(()))
        })
        .unwrap_or(Err(None))
    }

    fn guarded(&self, program: &str, arguments: &[&OsStr]) -> Guarded {
        #[expect(clippy::disallowed_methods, reason = "the log of the server")]
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.join("log")).expect("the log");
        Guarded::start(&self.folder, &self.installation.program(program), arguments, log, |command| {
            if let Some(account) = self.account {
                account.run(command);
            }
            command.current_dir(&self.folder);
        })
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing in it is needed any more: no checkpoint.
        self.shut_down(Signal::Quit);
        if let Some(guarded) = self.postmaster().take() {
            guarded.remove_folder();
        }
        if !wait_until(Duration::from_secs(10), || !self.folder.exists()) {
            // Where the server's account may not remove it from its parent, or never had a guard.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn running(guarded: &mut Option<Guarded>) -> Option<&mut Guarded> {
    guarded.as_mut().and_then(|postmaster| postmaster.ended().is_none().then_some(postmaster))
}

/// Runs `psql` as prepared; the error is its words.
pub(crate) fn psql(mut command: Command, sql: &str) -> Result<String, String> {
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("does not start: {error}"))?;
    // Not read to its end if a statement fails; the status says so.
    let _ = child.stdin.take().expect("piped").write_all(sql.as_bytes());
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn signal(pid: u32, signal: Signal) {
    send_signal(pid, signal).unwrap_or_else(|error| panic!("{signal:?} to process {pid} of the server: {error}"));
}

/// Whether a start failed for something that a killed predecessor has left and the system is still clearing away.
fn is_passing(log: &str) -> bool {
    ["shared memory block", "lock file \"", "Address already in use"].iter().any(|words| log.contains(words))
}

/// The folder for temporary files, unless its name is so long that a socket in it could not be named.
fn parent_folder() -> PathBuf {
    let folder = std::env::temp_dir();
    if folder.as_os_str().len() <= 50 { folder } else { PathBuf::from("/tmp") }
}

fn read_text(path: &Path) -> String {
    #[expect(clippy::disallowed_methods, reason = "a text file in the server's temporary folder")]
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn write_text(path: &Path, text: &str) {
    #[expect(clippy::disallowed_methods, reason = "a text file in the server's temporary folder")]
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn append_text(path: &Path, text: &str) {
    write_text(path, &format!("{}{text}", read_text(path)));
}
