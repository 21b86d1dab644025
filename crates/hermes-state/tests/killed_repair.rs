//! Repairs that are killed at any moment: under the store's name there is always a whole file, and the next repair ends it.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report, and tests say what they saw")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use hermes_state::{LockKind, NewMessage, NewSession, RepairOptions, RepairStrategy, SessionDb};
use support::{play, python_says, role};

const NAME: &str = "a_repair_that_is_killed_loses_no_message_that_can_be_read";

fn fill(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    for session in 0..10 {
        let id = format!("s{session}");
        db.create_session(NewSession::new(id.as_str(), "cli")).expect("creates");
        let texts = (0..300).map(|number| format!("marker{session}x{number} {}", "filler ".repeat(20)));
        db.append_messages(id.as_str(), texts.map(|text| NewMessage::new("user", text)).collect()).expect("appends");
    }
    db.close().expect("closes");
}

fn make(path: &Path) {
    fill(path);
    // Noise in two leaf pages of messages, put there by somebody else's process; their rows by the index.
    python_says(
        path,
        "c = sqlite3.connect(path)
root = c.execute(\"SELECT rootpage FROM sqlite_master WHERE name = 'messages'\").fetchone()[0]
c.close()
data = bytearray(open(path, 'rb').read())
page = lambda n: memoryview(data)[(n - 1) * 4096:n * 4096]
number = lambda p, at, size: int.from_bytes(p[at:at + size], 'big')
while page(root)[0] == 5:
    p = page(root)
    leaves = [number(p, number(p, 12 + 2 * i, 2), 4) for i in range(number(p, 3, 2))]
    if page(leaves[0])[0] == 13: break
    root = leaves[1]
for leaf in (leaves[3], leaves[9]):
    data[(leaf - 1) * 4096:leaf * 4096] = os.urandom(4096)
open(path, 'wb').write(data)",
    );
}

/// How many messages can be read, by cutting the ids into pieces.
fn readable(path: &Path) -> usize {
    let count = python_says(
        path,
        "c = sqlite3.connect(path)
found = 0
for i in range(1, 3001):
    try: found += c.execute('SELECT COUNT(content) FROM messages NOT INDEXED WHERE id = ?', (i,)).fetchone()[0]
    except sqlite3.DatabaseError: pass
print(found)",
    );
    count.parse().expect("a number")
}

#[test]
fn a_repair_that_is_killed_loses_no_message_that_can_be_read() {
    if let Some((_, path)) = role() {
        let report = SessionDb::repair_file(path, &RepairOptions::default()).expect("repairs");
        println!("done {}", report.strategy.name());
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    make(&path);
    let whole = readable(&path);
    assert!(whole < 3000 && whole > 2800, "{whole}");
    let mut kills = 0;
    for delay in (0..).map(|step| Duration::from_millis(15 * step)) {
        let mut repair = play(NAME, "repair", &path, LockKind::PrivateTable);
        let mut repair = repair.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs");
        std::thread::sleep(delay);
        repair.kill().expect("killed");
        let said = repair.wait_with_output().expect("ends");
        assert_eq!(readable(&path), whole, "after {delay:?}");
        if String::from_utf8_lossy(&said.stdout).contains("done") {
            break;
        }
        kills += 1;
    }
    println!("{kills} kills");
    assert!(kills > 3, "the repair was over too soon to be killed");
    let report = SessionDb::repair_file(&path, &RepairOptions::default()).expect("repairs");
    assert_eq!(report.strategy, RepairStrategy::AlreadyHealthy);
    let db = SessionDb::open(&path).expect("opens");
    assert_eq!(usize::try_from(db.status().expect("status").messages), Ok(whole));
    assert_eq!(db.search_messages("marker9x299", &Default::default()).expect("searches").len(), 1);
    let left: Vec<String> = std::fs::read_dir(folder.path())
        .expect("lists")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("repairing"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

/// Runs this process's part of a test, if it has one: a repair of the store, into another file if it is to be.
fn in_role() -> bool {
    let Some((role, path)) = role() else { return false };
    let mut options = RepairOptions::default();
    options.into = (role == "into").then(|| new_file(&path));
    match SessionDb::repair_file(path, &options) {
        Ok(report) => println!("done {}", report.strategy.name()),
        Err(error) => println!("refused: {error}"),
    }
    true
}

fn new_file(store: &Path) -> PathBuf {
    store.with_file_name("new.db")
}

fn start(test: &str, role: &str, path: &Path) -> Child {
    let mut repair = play(test, role, path, LockKind::PrivateTable);
    repair.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs")
}

fn said(repair: Child) -> String {
    String::from_utf8_lossy(&repair.wait_with_output().expect("ends").stdout).into_owned()
}

fn digest(path: &Path) -> String {
    python_says(path, "import hashlib\nprint(hashlib.sha256(open(path, 'rb').read()).hexdigest())")
}

fn left_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).expect("lists");
    let names = names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("repairing")).collect()
}

/// Messages without a session, and an index full of zeros.
fn damage(path: &Path) {
    python_says(
        path,
        "c = sqlite3.connect(path)
c.execute('DELETE FROM sessions WHERE id = \"s3\"')
c.execute('UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10')
c.commit()",
    );
}

#[test]
fn a_repair_into_a_new_file_that_is_killed_leaves_the_store_untouched_and_no_half_of_a_file() {
    if in_role() {
        return;
    }
    let name = "a_repair_into_a_new_file_that_is_killed_leaves_the_store_untouched_and_no_half_of_a_file";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    make(&path);
    let (whole, before) = (readable(&path), digest(&path));
    let mut kills = 0;
    for delay in (0..).map(|step| Duration::from_millis(15 * step)) {
        let mut repair = start(name, "into", &path);
        std::thread::sleep(delay);
        repair.kill().expect("killed");
        let said = said(repair);
        assert_eq!(digest(&path), before, "after {delay:?}");
        if new_file(&path).exists() {
            break;
        }
        assert!(!said.contains("refused"), "{said}");
        kills += 1;
    }
    assert!(kills > 3, "the repair was over too soon to be killed");
    assert_eq!(readable(&new_file(&path)), whole, "it is there whole or not at all");
    std::fs::remove_file(new_file(&path)).expect("removes");
    let told = said(start(name, "into", &path));
    assert!(told.contains("done salvage_rows"), "{told}");
    assert_eq!((readable(&new_file(&path)), digest(&path)), (whole, before));
    assert_eq!(left_in(folder.path()), Vec::<String>::new());
}

#[test]
fn repairs_at_once_of_which_some_are_killed_are_one_repair_and_lose_nothing() {
    if in_role() {
        return;
    }
    let name = "repairs_at_once_of_which_some_are_killed_are_one_repair_and_lose_nothing";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    fill(&path);
    damage(&path);
    let mut killed = 0;
    for delay in [0, 40, 90, 150, 220, 300].map(Duration::from_millis) {
        let mut victims = [start(name, "repair", &path), start(name, "repair", &path)];
        std::thread::sleep(delay);
        for victim in &mut victims {
            victim.kill().expect("killed");
        }
        let done = victims.map(said).iter().any(|said| said.contains("done"));
        assert_eq!(readable(&path), 3000, "after {delay:?}");
        killed += usize::from(!done);
    }
    println!("{killed} times both were killed at work");
    let said = [(); 3].map(|()| start(name, "repair", &path)).map(said);
    let refused = said.iter().filter(|said| said.contains("refused: ") && said.contains("in use")).count();
    let repaired = said.iter().filter(|said| said.contains("done rebuild_fts")).count();
    let well = said.iter().filter(|said| said.contains("done already_healthy")).count();
    assert!(repaired <= 1 && refused + repaired + well == 3, "{said:?}");
    let report = SessionDb::repair_file(&path, &RepairOptions::default()).expect("repairs");
    // Each may have kept the file from the others, on a machine that is busy.
    let ended = if refused == 3 { RepairStrategy::RebuildFts } else { RepairStrategy::AlreadyHealthy };
    assert_eq!(report.strategy, ended, "{said:?}");
    let found = python_says(
        &path,
        "c = sqlite3.connect(path)
print(*c.execute('SELECT COUNT(*), COUNT(DISTINCT id) FROM messages').fetchone(), c.execute('SELECT source FROM sessions WHERE id = \"s3\"').fetchone()[0])",
    );
    assert_eq!(found, "3000 3000 unknown");
    let kept = std::fs::read_dir(folder.path()).expect("lists");
    let kept = kept.filter(|entry| entry.as_ref().expect("one").file_name().to_string_lossy().contains("malformed"));
    assert_eq!(kept.count(), 1, "the damaged file, once");
    assert_eq!(left_in(folder.path()), Vec::<String>::new());
}
