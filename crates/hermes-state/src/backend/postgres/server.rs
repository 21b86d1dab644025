//! A PostgreSQL server for tests: made in a folder of its own, ended with the test's process.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::connect::{Connected, Role, connect};
use super::url::Address;

/// Runs the server until standard input ends, as it does however this process ends, and clears up.
const SCRIPT: &str = r#"
"$BIN/postgres" -D "$DATA" -k "$DATA" -p "$PORT" $MORE >"$DATA/log" 2>&1 &
server=$!
for i in $(seq 200); do "$BIN/pg_isready" -q -h 127.0.0.1 -p "$PORT" -U postgres && break; sleep 0.05; done
echo ready
read -r _
kill -INT $server
wait $server
rm -rf "$DATA"
"#;

pub(super) struct Server {
    pub(super) port: u16,
    pub(super) data: PathBuf,
    _alive: ChildStdin,
    _child: Child,
}

fn binaries() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path()).collect();
    found.sort();
    found.into_iter().map(|path| path.join("bin")).rfind(|path| path.join("initdb").exists())
}

/// The command, run as the user `postgres` if this is root, which the server refuses to be.
fn as_postgres(program: &Path) -> Command {
    let id = Command::new("id").arg("-u").output().unwrap();
    if id.stdout.starts_with(b"0\n") {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

impl Server {
    /// A server of one's own, with more options and with files made in its folder first.
    pub(super) fn start(more: &str, prepare: impl FnOnce(&Path)) -> Option<Self> {
        let Some(bin) = binaries() else {
            #[expect(clippy::print_stderr, reason = "a test that could not run says so")]
            {
                eprintln!("NO POSTGRESQL SERVER IS INSTALLED: THIS TEST DID NOT RUN");
            }
            return None;
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let data = std::env::temp_dir().join(format!("hermes-state-server-{}-{number}", std::process::id()));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let made = as_postgres(&bin.join("initdb"))
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success());
        // `postgres` is let in, everybody else asked for a password.
        let rules = "local all all trust\nhost all postgres all trust\nhost all all all scram-sha-256\n";
        #[expect(clippy::disallowed_methods, reason = "a file of the test's server")]
        std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
        prepare(&data);
        let mut child = as_postgres(Path::new("sh"))
            .args(["-c", SCRIPT])
            .envs([("BIN", bin.as_os_str()), ("DATA", data.as_os_str())])
            .envs([("PORT", port.to_string()), ("MORE", format!("-F {more}"))])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Self { port, data, _alive: child.stdin.take().unwrap(), _child: child })
    }

    /// The server that the tests of this process share.
    pub(super) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Server>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start("", |_| ())).as_ref()
    }

    /// An address on this server, of a schema that no other test has.
    pub(super) fn address(&self) -> Address {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        self.address_of(&format!("postgres@127.0.0.1:{}/postgres?schema=test_{number}", self.port))
    }

    pub(super) fn address_of(&self, rest: &str) -> Address {
        Address::parse(&format!("postgresql://{rest}")).unwrap()
    }

    /// Runs statements as the superuser.
    pub(super) fn run(&self, sql: &str) {
        let address = self.address();
        block_on(async {
            let connected = writer(&address).await;
            // One by one: together they would be a transaction, in which no database can be made.
            for statement in sql.split("; ") {
                connected.client.batch_execute(statement).await.unwrap();
            }
        });
    }
}

pub(super) async fn writer(address: &Address) -> Connected {
    match connect(address, Role::Writer).await {
        Ok(connected) => connected,
        Err(error) => panic!("{error:?}"),
    }
}

/// Runs a future on a runtime of its own, as the threads of the backend do.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
    let outcome = runtime.block_on(future);
    runtime.shutdown_background();
    outcome
}
