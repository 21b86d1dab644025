//! The layer against everything that broke its prototypes. The kind of locks is the process's, so each scenario runs in
//! a process of its own: this test binary again, told to run that one test.
#![expect(clippy::disallowed_methods, reason = "the tests play the careless neighbour")]

mod forks;
mod model;
mod neighbours;
mod parking;
mod storm;

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rusqlite::Connection;

use super::sys;
use crate::backend::sqlite::lock::{LockKind, require_lock_kind};

const SCENARIO: &str = "HERMES_STATE_SCENARIO";

/// What becomes of a scenario when the layer is off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Control {
    /// Ordinary locks fail it, and the harness makes sure that they do.
    FailsWithout,
    /// It guards against faults that only a careless layer has.
    None,
}

/// Declares tests that each run in a fresh process with the layer in force, and again without it as a control.
macro_rules! scenarios {
    ($($(#[$meta:meta])* $name:ident, $control:ident, $body:block)*) => {$(
        $(#[$meta])*
        #[test]
        fn $name() {
            $crate::backend::sqlite::lock::ofd::tests::in_fresh_process(
                concat!(module_path!(), "::", stringify!($name)),
                $crate::backend::sqlite::lock::ofd::tests::Control::$control,
                || $body,
            );
        }
    )*};
}
pub(super) use scenarios;

fn in_fresh_process(test: &str, control: Control, body: fn()) {
    let name = test.split_once("::").expect("a path in this crate").1;
    match std::env::var(SCENARIO).as_deref() {
        Ok("ordinary") => {
            require_lock_kind(LockKind::Ordinary).expect("ordinary locks are always to be had");
            body();
        }
        Ok(_) => {
            require_lock_kind(LockKind::OpenFileDescription).expect("this system locks descriptions");
            body();
        }
        Err(_) => {
            let (passed, report) = run(name, "layer");
            assert!(passed, "with the layer:\n{report}");
            if control == Control::FailsWithout {
                let (passed, report) = run(name, "ordinary");
                assert!(!passed, "this passes without the layer and proves nothing:\n{report}");
            }
        }
    }
}

fn run(name: &str, locks: &str) -> (bool, String) {
    // By this name it is found even if a new build replaced the file meanwhile.
    let output = Command::new("/proc/self/exe")
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(SCENARIO, locks)
        .output()
        .expect("the test binary runs");
    let report = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!report.contains("running 0 tests"), "{name} names no test");
    (output.status.success(), report)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Wal,
    Rollback,
}

/// A database in a directory of its own, with one table `t`.
struct Db {
    directory: tempfile::TempDir,
    mode: Mode,
}

impl Db {
    /// Made by another process, so that this one knows nothing of it yet.
    fn new(mode: Mode) -> Self {
        // In memory where possible: nothing here depends on a disk, and much waits for it.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a scratch directory");
        let db = Self { directory, mode };
        let mut maker = db.sibling();
        maker.ok(if mode == Mode::Wal { "PRAGMA journal_mode=WAL" } else { "PRAGMA journal_mode=DELETE" });
        maker.ok("CREATE TABLE t(who, n)");
        db
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("state.db")
    }

    fn shm(&self) -> PathBuf {
        self.directory.path().join("state.db-shm")
    }

    fn wal(&self) -> PathBuf {
        self.directory.path().join("state.db-wal")
    }

    fn journal(&self) -> PathBuf {
        self.directory.path().join("state.db-journal")
    }

    /// A connection of ours, without patience.
    fn open(&self) -> Connection {
        open(&self.path())
    }

    fn sibling(&self) -> Sibling {
        Sibling::start(&self.path())
    }

    /// The file and the byte by which a writer of this mode is known (SQLite's file format: the first lock byte of the
    /// `-shm`, and the byte after the pending byte).
    fn write_lock(&self) -> (PathBuf, i64) {
        match self.mode {
            Mode::Wal => (self.shm(), 120),
            Mode::Rollback => (self.path(), 0x4000_0001),
        }
    }

    /// How many descriptors of this process lead into the directory.
    fn descriptors(&self) -> usize {
        descriptors(|target| target.starts_with(self.directory.path()))
    }
}

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("the database opens");
    connection.busy_timeout(Duration::ZERO).expect("no patience");
    connection
}

fn descriptors(of: impl Fn(&Path) -> bool) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("a list of descriptors");
    entries.filter(|entry| entry.as_ref().is_ok_and(|e| std::fs::read_link(e.path()).is_ok_and(|to| of(&to)))).count()
}

fn is_busy<T: std::fmt::Debug>(result: rusqlite::Result<T>) -> bool {
    match result {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => true,
        Err(error) => panic!("neither done nor busy: {error}"),
        Ok(_) => false,
    }
}

/// Another process with the SQLite that Python brings, obeying one statement at a time.
struct Sibling {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Sibling {
    const PROGRAM: &str = "
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
for line in sys.stdin:
    try:
        row = c.execute(line).fetchone()
        print('ok', row[0] if row else '', flush=True)
    except sqlite3.Error as e:
        print('error', e, flush=True)
c.close()
";

    fn start(path: &Path) -> Self {
        let mut process = Command::new("python3")
            .args(["-c", Self::PROGRAM])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there to play the sibling");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, answers }
    }

    fn ask(&mut self, sql: &str) -> String {
        let stdin = self.process.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{sql}").expect("the sibling listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the sibling answers");
        answer.trim().to_owned()
    }

    fn ok(&mut self, sql: &str) -> String {
        let answer = self.ask(sql);
        answer.strip_prefix("ok").unwrap_or_else(|| panic!("{sql}: {answer}")).trim().to_owned()
    }

    fn count(&mut self) -> usize {
        self.ok("SELECT count(*) FROM t").parse().expect("a number")
    }

    /// Whether somebody keeps it from writing.
    fn is_locked_out(&mut self) -> bool {
        match self.ask("BEGIN IMMEDIATE").as_str() {
            "ok" => {
                self.ok("ROLLBACK");
                false
            }
            "error database is locked" => true,
            answer => panic!("neither done nor locked: {answer}"),
        }
    }

    fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// A stranger in this process who locks one byte in the ordinary way, as another SQLite library would.
struct PosixLock(#[expect(dead_code, reason = "kept open: closing it would drop the lock")] std::fs::File);

impl PosixLock {
    fn try_take((path, byte): (PathBuf, i64)) -> Option<Self> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the file is there");
        let mut lock = sys::request(libc::F_WRLCK, (byte as u64, byte as u64 + 1));
        // SAFETY: a valid structure that outlives the call.
        let taken = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut lock) } == 0;
        taken.then_some(Self(file))
    }
}

type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type Exec = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void, *mut c_void, *mut c_void) -> c_int;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The system's own SQLite library, loaded into this process beside ours.
struct Neighbour {
    exec: Exec,
    close: Close,
    connection: *mut c_void,
}

// SAFETY: SQLite as the system builds it serialises the use of a connection.
unsafe impl Send for Neighbour {}

impl Neighbour {
    /// None where the system has no SQLite library.
    fn open(path: &Path) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path");
        // SAFETY: the library is SQLite, whose functions of these names have these signatures.
        unsafe {
            let library =
                libc::dlopen(c"libsqlite3.so.0".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND);
            if library.is_null() {
                return None;
            }
            let open = std::mem::transmute::<*mut c_void, Open>(libc::dlsym(library, c"sqlite3_open".as_ptr()));
            let exec = std::mem::transmute::<*mut c_void, Exec>(libc::dlsym(library, c"sqlite3_exec".as_ptr()));
            let close = std::mem::transmute::<*mut c_void, Close>(libc::dlsym(library, c"sqlite3_close".as_ptr()));
            let mut connection = std::ptr::null_mut();
            assert_eq!(open(path.as_ptr(), &raw mut connection), 0, "the neighbour opens the file");
            Some(Self { exec, close, connection })
        }
    }

    /// SQLite's result code: 0 is done, 5 is busy.
    fn exec(&self, sql: &str) -> c_int {
        let sql = CString::new(sql).expect("no NUL in a statement");
        let none = std::ptr::null_mut();
        // SAFETY: an open connection, a NUL-terminated statement, and no callback.
        unsafe { (self.exec)(self.connection, sql.as_ptr(), none, none, none) }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once.
        unsafe { (self.close)(self.connection) };
    }
}

/// Becomes a user whom file permissions bind.
fn give_up_root(db: &Db) {
    const NOBODY: u32 = 65534;
    // SAFETY: no memory is involved but a NUL-terminated path.
    unsafe {
        if libc::geteuid() != 0 {
            return;
        }
        for path in [db.directory.path().to_owned(), db.path(), db.shm(), db.wal()] {
            let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path");
            libc::chown(path.as_ptr(), NOBODY, NOBODY);
        }
        assert_eq!(libc::setgid(NOBODY), 0);
        assert_eq!(libc::setuid(NOBODY), 0);
    }
}

fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("the file is ours");
}

/// Forks; the child runs `body`, ends with its answer as exit code, and is killed if it takes longer than 100 s.
fn fork(body: impl FnOnce() -> c_int) -> libc::pid_t {
    // SAFETY: the child runs what a forked child of this library may run, and ends without returning.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(100);
                libc::_exit(std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101))
            }
            pid => pid,
        }
    }
}

/// The exit code of a child, or the negated signal that ended it.
fn wait(pid: libc::pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: the integer outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// A one-way signal between forked processes.
struct Pipe {
    read: RawFd,
    write: RawFd,
}

impl Pipe {
    fn new() -> Self {
        let mut ends = [0; 2];
        // SAFETY: an array of two integers that outlives the call.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        Self { read: ends[0], write: ends[1] }
    }

    fn send(&self, number: i32) {
        // SAFETY: the bytes outlive the call.
        unsafe { libc::write(self.write, (&raw const number).cast(), 4) };
    }

    fn receive(&self) -> i32 {
        let mut number = 0;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::read(self.read, (&raw mut number).cast(), 4) }, 4);
        number
    }
}
