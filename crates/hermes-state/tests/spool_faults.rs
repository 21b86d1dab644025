//! The spool under what goes wrong around a store: rights taken away under a live handle, no descriptors left, a holder of
//! ours that is stopped, stores that cannot be opened. Every message that was acknowledged is there once in the end.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report, and tests say what they saw")]
#![expect(clippy::disallowed_methods, reason = "it is no store")]

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hermes_state::{Appended, Error, LockKind, NewMessage, NewSession, OpenOptions, Patience, SessionDb};
use support::{must_succeed, play, python_says, python_started, role};

const NOBODY: u32 = 65534;

fn patience(seconds: f64) -> Patience {
    Patience { transcript: Duration::from_secs_f64(seconds), routine: Duration::from_secs_f64(seconds) }
}

/// The folder of spools, beside the folder of the store.
fn spools(store: &Path) -> PathBuf {
    store.parent().and_then(Path::parent).expect("two folders").join("spools")
}

fn options(store: &Path) -> OpenOptions {
    OpenOptions::new().patience(patience(1.0)).spool_folder(spools(store))
}

fn outcome(answer: Result<Appended, Error>) -> String {
    match answer {
        Ok(Appended::Stored(_)) => "stored".to_owned(),
        Ok(Appended::Spooled(_)) => "spooled".to_owned(),
        Err(error) => format!("refused {}", error.kind()),
    }
}

fn append(db: &SessionDb, text: &str) -> String {
    outcome(db.append_message("s", NewMessage::new("user", text)))
}

/// The messages of `s` in order, as another process sees them.
fn texts(path: &Path) -> Vec<String> {
    let found = python_says(
        path,
        "c = sqlite3.connect(path)\nassert c.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
         print(' '.join(r[0] for r in c.execute(\"SELECT content FROM messages WHERE session_id = 's' ORDER BY id\")))",
    );
    found.split_whitespace().map(str::to_owned).collect()
}

/// Each of these once, and in this order; nothing is said of others.
fn in_order(found: &[String], expected: &[&str]) {
    let of_these: Vec<&str> = found.iter().map(String::as_str).filter(|text| expected.contains(text)).collect();
    assert_eq!(of_these, expected, "{found:?}");
}

/// A folder with one for the store and one for spools in it, all of them a common user's.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().expect("a folder"));
        fs::set_permissions(world.0.path(), Permissions::from_mode(0o755)).expect("sets");
        for folder in ["store", "spools"] {
            let folder = world.0.path().join(folder);
            fs::create_dir(&folder).expect("makes");
            if is_root() {
                chown(&folder, Some(NOBODY), Some(NOBODY)).expect("gives");
            }
        }
        world
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store/state.db")
    }

    fn set(&self, folder: u32, files: u32) {
        let inside = self.path().parent().expect("a folder").to_owned();
        for entry in fs::read_dir(&inside).expect("lists") {
            fs::set_permissions(entry.expect("one").path(), Permissions::from_mode(files)).expect("sets");
        }
        fs::set_permissions(inside, Permissions::from_mode(folder)).expect("sets");
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The command in a shell that first does something.
fn wrapped(played: &Command, shell: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", shell, "bash"]).arg(played.get_program()).args(played.get_args()).current_dir("/");
    command.envs(played.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// A process of a common user that appends what it is told, a line at a time.
struct Servant {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Servant {
    fn start(test: &str, store: &Path) -> Self {
        let shell = match is_root() {
            true => r#"exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@""#,
            false => r#"exec "$@""#,
        };
        let played = play(test, "servant", store, LockKind::PrivateTable);
        let mut command = wrapped(&played, shell);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output: BufReader::new(output) }
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.input, "{what}").expect("it listens");
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("reads") > 0, "the process is gone");
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().expect("ends").success());
    }
}

fn serve(path: &Path) {
    let db = options(path).open(path).expect("gives a handle");
    let _ = db.ensure_session(NewSession::new("s", "cli"));
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let said = match &*line {
            "cause" => db.set_meta("k", "v").map_or_else(|error| error.kind().to_string(), |()| "none".to_owned()),
            text => append(&db, text),
        };
        println!("answer: {said}");
        std::io::stdout().flush().expect("the test listens");
    }
}

#[test]
fn a_folder_that_is_made_read_only_under_a_live_handle_costs_no_message() {
    const NAME: &str = "a_folder_that_is_made_read_only_under_a_live_handle_costs_no_message";
    if let Some((_, path)) = role() {
        return serve(&path);
    }
    let world = World::new();
    let mut early = Servant::start(NAME, &world.path());
    assert_eq!(early.ask("e1"), "stored");
    for (number, (folder, files)) in [(0o555, 0o600), (0o555, 0o444), (0o500, 0o400)].into_iter().enumerate() {
        world.set(folder, files);
        let said = early.ask(&format!("e{}", number + 2));
        assert!(said == "stored" || said == "spooled", "{said}");
    }
    let mut late = Servant::start(NAME, &world.path());
    assert_eq!((late.ask("l1"), late.ask("cause")), ("spooled".to_owned(), "readonly".to_owned()));
    // One that cannot even look.
    world.set(0o000, 0o400);
    let mut blind = Servant::start(NAME, &world.path());
    assert_eq!(blind.ask("b1"), "spooled");
    assert_ne!(blind.ask("cause"), "none");
    let said = early.ask("e5");
    assert!(said == "stored" || said == "spooled", "{said}");
    assert_eq!(late.ask("l2"), "spooled");
    world.set(0o700, 0o600);
    assert_eq!((late.ask("l3"), late.ask("cause")), ("stored".to_owned(), "none".to_owned()));
    let said = early.ask("e6");
    assert!(said == "stored" || said == "spooled", "{said}");
    assert_eq!(blind.ask("b2"), "stored");
    [early, late, blind].into_iter().for_each(Servant::end);
    let mut last = Servant::start(NAME, &world.path());
    assert_eq!(last.ask("last"), "stored");
    last.end();
    let found = texts(&world.path());
    in_order(&found, &["e1", "e2", "e3", "e4", "e5", "e6"]);
    in_order(&found, &["l1", "l2", "l3"]);
    in_order(&found, &["b1", "b2"]);
    assert_eq!(found.len(), 12, "{found:?}");
    assert_eq!(fs::read_dir(spools(&world.path())).expect("lists").count(), 0);
}

/// Opens for the first time, and appends, with so many descriptors left; then with all of them.
fn starve(path: &Path, left: usize) {
    let mut open: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        open.push(file);
    }
    open.truncate(open.len() - left);
    let early = options(path).open(path);
    let said = |db: &hermes_state::Result<SessionDb>, text: &str| match db {
        Ok(db) => append(db, text),
        Err(error) => format!("refused {}", error.kind()),
    };
    println!("answer: first {}", said(&early, "first"));
    let second = options(path).open(path);
    println!("answer: second {}", said(&second, "second"));
    fs::create_dir(path.with_extension("release")).expect("makes");
    for db in [&early, &second].into_iter().flatten() {
        db.set_patience(patience(60.0));
    }
    println!("answer: between {}", said(&second, "between"));
    drop(open);
    for (db, text) in [(&early, "third"), (&second, "fourth")] {
        println!("answer: {text} {}", said(db, text));
    }
    println!("answer: last {}", said(&options(path).open(path), "last"));
}

#[test]
fn a_process_without_descriptors_loses_nothing_that_it_acknowledged() {
    const NAME: &str = "a_process_without_descriptors_loses_nothing_that_it_acknowledged";
    if let Some((role, path)) = role() {
        return starve(&path, role.parse().expect("a number"));
    }
    let mut outcomes = BTreeSet::new();
    let kinds = [LockKind::PrivateTable, LockKind::OpenFileDescription];
    for (locks, left, held) in
        kinds.into_iter().flat_map(|locks| (0..6).flat_map(move |left| [false, true].map(|held| (locks, left, held))))
    {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store/state.db");
        let db = SessionDb::open(&path).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        drop(db);
        let holder = held.then(|| {
            python_started(
                &path,
                "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\n\
                 while not os.path.exists(path[:-3] + '.release'): time.sleep(0.01)",
            )
        });
        let played = play(NAME, &left.to_string(), &path, locks);
        let output = wrapped(&played, r#"ulimit -n 128; exec "$@""#).output().expect("runs");
        must_succeed(&output);
        if let Some(mut holder) = holder {
            assert!(holder.wait().expect("ends").success());
        }
        let said = String::from_utf8(output.stdout).expect("text");
        let answers: Vec<(&str, &str)> = said
            .lines()
            .filter_map(|line| line.split_once("answer: ").and_then(|(_, answer)| answer.split_once(' ')))
            .collect();
        println!("{locks:?}, {left} left, held {held}: {answers:?}");
        let refused = |outcome: &str| outcome.starts_with("refused");
        let is_told = |outcome: &str| outcome == "refused descriptors" || held && outcome == "refused locked";
        assert!(answers.iter().all(|(_, outcome)| !refused(outcome) || is_told(outcome)), "{answers:?}");
        assert_eq!((answers.len(), answers.last()), (6, Some(&("last", "stored"))));
        // Threads with descriptors of their own leave nothing to be refused.
        assert!(locks != LockKind::PrivateTable || !answers.iter().any(|(_, outcome)| refused(outcome)));
        let kept: Vec<&str> = answers.iter().filter(|(_, outcome)| !refused(outcome)).map(|(text, _)| *text).collect();
        assert_eq!(texts(&path), kept, "{locks:?}, {left} left");
        outcomes.extend(answers.iter().map(|(_, outcome)| (*outcome).to_owned()));
    }
    assert!(["stored", "spooled", "refused descriptors"].into_iter().all(|one| outcomes.contains(one)), "{outcomes:?}");
}

/// Stores batches, and says each when it is acknowledged, until it is to stop.
fn write_batches(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    for batch in 0.. {
        let texts = (0..400).map(|number| NewMessage::new("user", format!("ours{batch}x{number}")));
        let answer = db.append_messages("theirs", texts.collect()).expect("is kept");
        println!("acknowledged {batch} {}", answer.is_spooled());
        if path.with_file_name("stop").exists() {
            return;
        }
    }
}

#[test]
fn a_sibling_of_ours_that_is_stopped_while_it_holds_the_lock_costs_no_message() {
    const NAME: &str = "a_sibling_of_ours_that_is_stopped_while_it_holds_the_lock_costs_no_message";
    if let Some((_, path)) = role() {
        return write_batches(&path);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let db = OpenOptions::new().patience(patience(0.5)).open(&path).expect("opens");
    for session in ["s", "theirs"] {
        db.create_session(NewSession::new(session, "cli")).expect("creates");
    }
    let writer = play(NAME, "writer", &path, LockKind::PrivateTable).stdout(Stdio::piped()).spawn().expect("runs");
    let pid = writer.id().to_string();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
    };
    let is_held = || {
        python_says(
            &path,
            "c = sqlite3.connect(path, timeout=0, isolation_level=None)\ntry:\n    c.execute('BEGIN IMMEDIATE')\n    print('free')\nexcept sqlite3.OperationalError: print('held')",
        ) == "held"
    };
    for round in 0..3 {
        loop {
            signal("-STOP");
            if is_held() {
                break;
            }
            signal("-CONT");
            std::thread::sleep(Duration::from_millis(7));
        }
        for part in 0..2 {
            assert_eq!(append(&db, &format!("mine{round}x{part}")), "spooled");
        }
        let Err(Error::Busy { holder, .. }) = db.set_meta("k", "v") else { panic!("the lock is held") };
        assert_eq!(holder.map(|holder| holder.pid.to_string()), Some(pid.clone()));
        signal("-CONT");
        db.set_patience(patience(60.0));
        assert_eq!(append(&db, &format!("mine{round}x2")), "stored");
        db.set_patience(patience(0.5));
    }
    fs::create_dir(folder.path().join("stop")).expect("makes");
    let output = writer.wait_with_output().expect("ends");
    must_succeed(&output);
    drop(db);
    let expected: Vec<String> =
        (0..3).flat_map(|round| (0..3).map(move |part| format!("mine{round}x{part}"))).collect();
    assert_eq!(texts(&path), expected);
    let said = String::from_utf8(output.stdout).expect("text");
    let batches = said.lines().filter(|line| line.contains("acknowledged ")).count();
    let counted = "c = sqlite3.connect(path)\nprint(*c.execute(\"SELECT COUNT(*), COUNT(DISTINCT content) FROM messages WHERE session_id = 'theirs'\").fetchone())";
    assert_eq!(python_says(&path, counted), format!("{0} {0}", batches * 400));
}

#[test]
fn for_a_store_that_cannot_be_opened_an_append_is_spooled_at_once() {
    let damages = [
        "open(path, 'w').write('no store ' * 1000)",
        "data = bytearray(open(path, 'rb').read())\ndata[4096:] = bytes(len(data) - 4096)\nopen(path, 'wb').write(data)",
        "os.rename(os.path.dirname(path), os.path.dirname(path) + '.gone')\nopen(os.path.dirname(path), 'w').write('in the way')",
    ];
    for damage in damages {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store/state.db");
        let db = SessionDb::open(&path).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        drop(db);
        python_says(&path, &format!("import shutil\nshutil.copy(path, os.path.dirname(path) + '.good')\n{damage}"));
        // Nobody is busy, so that patience would be in vain.
        let db = options(&path).patience(patience(600.0)).open(&path).expect("gives a handle");
        let started = Instant::now();
        for text in ["a", "b", "c"] {
            assert_eq!(append(&db, text), "spooled", "{damage}");
        }
        assert!(started.elapsed() < Duration::from_secs(300), "{damage}: {:?}", started.elapsed());
        python_says(
            &path,
            "d = os.path.dirname(path)\nif os.path.isfile(d):\n    os.remove(d)\n    os.rename(d + '.gone', d)\nos.replace(d + '.good', path)",
        );
        assert_eq!(append(&db, "d"), "stored", "{damage}");
        drop(db);
        assert_eq!(texts(&path), ["a", "b", "c", "d"], "{damage}");
    }
}
