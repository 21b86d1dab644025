//! Stores that are damaged, replaced, cut or written over, before and while processes have them open.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report, and tests say what they saw")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use hermes_state::{
    CheckDepth, Error, LockKind, NewMessage, NewSession, OpenOptions, SearchOptions, SessionDb, StepPace,
};
use support::{must_succeed, play, python_says, role};

struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// A store with a session `s` of so many messages `marker<n>q`, closed.
    fn filled(messages: usize) -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        let db = open(world.path()).unwrap();
        db.create_session(NewSession::new("s", "cli")).unwrap();
        let text = |n| NewMessage::new("user", format!("marker{n}q {}", "and some words ".repeat(20)));
        db.append_messages("s", (0..messages).map(text).collect()).unwrap();
        db.close().unwrap();
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    /// What the files hold, as another process sees them.
    fn bytes(&self) -> String {
        python_says(
            &self.path(),
            "import hashlib\nfor s in ('', '-wal'):\n\
             \x20   p = path + s\n\
             \x20   print(s, hashlib.sha256(open(p, 'rb').read()).hexdigest() if os.path.exists(p) else None)",
        )
    }
}

/// Opens without the spool, which would keep what a test wants to see refused.
fn open(path: impl AsRef<Path>) -> Result<SessionDb, Error> {
    OpenOptions::new().spool(false).open(path)
}

fn say(db: &SessionDb, text: &str) -> Result<i64, Error> {
    db.append_message("s", NewMessage::new("user", text)).map(|appended| appended.id().expect("is stored"))
}

/// A process of ours that does what it is told, a line at a time, and answers each line.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(test: &str, store: &Path) -> Self {
        let mut child = play(test, "servant", store, LockKind::PrivateTable)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the process is gone");
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.hear()
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// The life of a [`Process`].
fn serve(path: &Path) {
    let answer = |text: String| {
        println!("answer: {}", text.replace('\n', " "));
        std::io::stdout().flush().unwrap();
    };
    let db = open(path);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let db = match &db {
            Ok(db) => db,
            Err(error) => {
                answer(format!("{error:?}"));
                continue;
            }
        };
        let said = match verb {
            "append" => say(db, rest).map(|id| format!("stored {id}")),
            "read" => db.messages("s", &Default::default()).map(|all| format!("read {}", all.len())),
            "search" => db
                .search_messages(rest, &SearchOptions::default())
                .map(|results| format!("found {} degraded {}", results.len(), results.degraded)),
            // So many, about twenty a second.
            "append-slowly" => (0..rest.parse::<usize>().unwrap()).try_fold(String::new(), |_, n| {
                std::thread::sleep(Duration::from_millis(50));
                say(db, &format!("slow{}x{n}q", std::process::id())).map(|id| format!("stored {id}"))
            }),
            other => panic!("no such order: {other}"),
        };
        answer(said.unwrap_or_else(|error| format!("{error:?}")));
    }
}

#[test]
fn a_destroyed_search_index_stops_nobody_and_is_rebuilt_while_two_processes_write() {
    const NAME: &str = "a_destroyed_search_index_stops_nobody_and_is_rebuilt_while_two_processes_write";
    if let Some((_, path)) = role() {
        return serve(&path);
    }
    let world = World::filled(300);
    python_says(
        &world.path(),
        "c = sqlite3.connect(path)\nfor t in ('messages_fts', 'messages_fts_trigram'): c.execute(f'UPDATE {t}_data SET block = zeroblob(64)')\nc.commit()",
    );
    let mut processes = [Process::start(NAME, &world.path()), Process::start(NAME, &world.path())];
    for n in 0..50 {
        for (number, process) in processes.iter_mut().enumerate() {
            let said = process.ask(&format!("append tail{}q of {number}", n * 2 + number));
            assert!(said.starts_with("stored"), "{said}");
        }
    }
    for process in &mut processes {
        for query in ["marker7q", "tail7q"] {
            assert_eq!(process.ask(&format!("search {query}")), "found 1 degraded true", "{query}");
        }
    }
    let db = open(world.path()).unwrap();
    assert!(db.search_indexes().unwrap().damaged);
    processes.iter_mut().for_each(|process| process.tell("append-slowly 40"));
    let started = Instant::now();
    assert_eq!(db.rebuild_fts(StepPace::default()).unwrap(), 2);
    assert!(started.elapsed() < Duration::from_secs(60));
    for process in &mut processes {
        let said = process.hear();
        assert!(said.starts_with("stored"), "{said}");
        for query in ["marker7q", "tail7q"] {
            assert_eq!(process.ask(&format!("search {query}")), "found 1 degraded false", "{query}");
        }
    }
    assert!(!db.search_indexes().unwrap().damaged);
    assert_eq!(db.message_count(None).unwrap(), 300 + 100 + 80);
    processes.into_iter().for_each(Process::end);
    db.close().unwrap();
    assert!(SessionDb::check_file(world.path(), CheckDepth::Full).unwrap().is_well());
}

#[test]
fn the_health_of_a_store_with_a_destroyed_index_is_told() {
    let world = World::filled(300);
    python_says(
        &world.path(),
        "c = sqlite3.connect(path)\nfor t in ('messages_fts', 'messages_fts_trigram'): c.execute(f'UPDATE {t}_data SET block = zeroblob(64)')\nc.commit()",
    );
    let health = SessionDb::check_file(world.path(), CheckDepth::Full).unwrap();
    assert_eq!(health.verdict(), "index damaged, transcript intact");
}

#[test]
fn a_rebuild_whose_process_was_killed_is_gone_on_with_by_whoever_writes() {
    const NAME: &str = "a_rebuild_whose_process_was_killed_is_gone_on_with_by_whoever_writes";
    if let Some((role, path)) = role() {
        if role == "servant" {
            return serve(&path);
        }
        let db = open(&path).unwrap();
        db.demote_legacy_fts_to_trash().unwrap();
        db.fts_rebuild_step(100).unwrap();
        std::process::abort();
    }
    let world = World::filled(1500);
    assert!(!play(NAME, "killed", &world.path(), LockKind::PrivateTable).output().unwrap().status.success());
    // A process that writes at once leaves it to whoever may still be at it.
    let mut early = Process::start(NAME, &world.path());
    for n in 0..20 {
        early.ask(&format!("append early{n}q"));
    }
    early.end();
    let marker = "c = sqlite3.connect(path)\nprint(c.execute(\"SELECT value FROM state_meta WHERE key = 'fts_rebuild_progress'\").fetchone())";
    assert_eq!(python_says(&world.path(), marker), "('100',)");
    python_says(
        &world.path(),
        "c = sqlite3.connect(path)\nassert c.execute(\"UPDATE state_meta SET value = value - 100 WHERE key = 'hermes_state_index_touched'\").rowcount == 1\nc.commit()",
    );
    let mut late = Process::start(NAME, &world.path());
    let started = Instant::now();
    let mut n = 0;
    while late.ask("search marker1499q") != "found 1 degraded false"
        || python_says(
            &world.path(),
            "c = sqlite3.connect(path)\nprint(c.execute(\"SELECT count(*) FROM sqlite_master WHERE name LIKE 'fts_v22_trash%'\").fetchone()[0])",
        ) != "0"
    {
        assert!(started.elapsed() < Duration::from_secs(120), "nobody goes on");
        assert!(late.ask(&format!("append late{n}q")).starts_with("stored"));
        n += 1;
    }
    late.end();
    python_says(
        &world.path(),
        "c = sqlite3.connect(path, isolation_level=None)\nfor t in ('messages_fts', 'messages_fts_trigram'): c.execute(f\"INSERT INTO {t}({t}, rank) VALUES ('integrity-check', 1)\")",
    );
}

/// What others may do to the files of a store that is open, and a word that the error has to have.
const HARM: &[(&str, &str)] = &[
    ("another file", "import shutil\nshutil.copy(path, path + '.new'); os.replace(path + '.new', path)"),
    ("removed", "os.unlink(path)"),
    ("truncated", "os.truncate(path, 0)"),
    ("cut", "os.truncate(path, os.path.getsize(path) // 2)"),
    (
        "written over",
        "o = sqlite3.connect(path + '.o'); o.execute('CREATE TABLE o (x)'); o.executemany('INSERT INTO o VALUES (?)', [('x' * 900,)] * 900); o.commit(); o.close()\n\
         d = open(path + '.o', 'rb').read(); f = open(path, 'r+b'); f.write(d); f.close()",
    ),
    ("written over", "n = os.path.getsize(path); f = open(path, 'r+b'); f.write(os.urandom(n)); f.close()"),
    ("-wal was removed", "os.unlink(path + '-wal')"),
    ("-shm was removed", "os.unlink(path + '-shm')"),
    ("-wal was removed", "os.unlink(path + '-wal'); os.unlink(path + '-shm')"),
    (
        "-wal is another",
        "d = open(path + '-wal', 'rb').read(); open(path + '-w', 'wb').write(d); os.replace(path + '-w', path + '-wal')",
    ),
    ("log was cut", "os.truncate(path + '-wal', 0)"),
    ("log was cut", "os.truncate(path + '-wal', os.path.getsize(path + '-wal') // 2)"),
    (
        "log was written over",
        "n = os.path.getsize(path + '-wal'); f = open(path + '-wal', 'r+b'); f.write(os.urandom(n)); f.close()",
    ),
    ("-shm was truncated", "os.truncate(path + '-shm', 0)"),
];

#[test]
fn files_replaced_removed_cut_or_written_over_under_a_live_handle_acknowledge_and_change_nothing_more() {
    for (word, harm) in HARM {
        let world = World::filled(200);
        let db = open(world.path()).unwrap();
        let looking = SessionDb::open_read_only(world.path()).unwrap();
        for n in 0..5 {
            say(&db, &format!("before{n}q")).unwrap();
        }
        python_says(&world.path(), harm);
        let after = world.bytes();
        let started = Instant::now();
        for _ in 0..3 {
            let refused = say(&db, "lost?").expect_err(harm);
            assert!(
                matches!(&refused, Error::Replaced { .. }) && refused.to_string().contains(word),
                "{refused} after {harm}"
            );
        }
        assert!(matches!(db.set_meta("k", "v"), Err(Error::Replaced { .. })), "{harm}");
        assert!(matches!(db.checkpoint(), Err(Error::Replaced { .. })), "{harm}");
        let read = looking.message_count(None);
        assert!(matches!(read, Err(Error::Replaced { .. })), "{read:?} after {harm}");
        assert!(started.elapsed() < Duration::from_secs(10), "at once, not after a wait");
        db.close().unwrap();
        looking.close().unwrap();
        assert_eq!(world.bytes(), after, "closing changes nothing after {harm}");
    }
}

/// Overwrites leaf pages of a tree with random bytes, at most three; prints which.
fn damage_leaves(path: &Path, tree: &str) {
    python_says(
        path,
        &format!(
            "c = sqlite3.connect(path)\n\
             size = c.execute('PRAGMA page_size').fetchone()[0]\n\
             root, = c.execute(\"SELECT rootpage FROM sqlite_schema WHERE name = '{tree}'\").fetchone()\n\
             c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall(); c.close()\n\
             f = open(path, 'r+b')\n\
             def page(n): f.seek((n - 1) * size); return f.read(size)\n\
             def num(b, at, k): return int.from_bytes(b[at:at + k], 'big')\n\
             def leaves(n):\n\
             \x20   b = page(n); at = 100 if n == 1 else 0\n\
             \x20   if b[at] in (10, 13): return [n]\n\
             \x20   cells = [num(b, num(b, at + 12 + 2 * i, 2), 4) for i in range(num(b, at + 3, 2))] + [num(b, at + 8, 4)]\n\
             \x20   return [l for child in cells for l in leaves(child)]\n\
             all = leaves(root)\n\
             for n in {{all[0], all[len(all) // 2], all[-1]}} - {{1}}: f.seek((n - 1) * size); f.write(os.urandom(size))\n\
             f.close()"
        ),
    );
}

/// The messages that can be read from their table alone.
fn readable(path: &Path) -> BTreeMap<i64, String> {
    let told = python_says(
        path,
        "c = sqlite3.connect(path)\n\
         for i in range(1, 4000):\n\
         \x20   try: r = c.execute('SELECT content FROM messages NOT INDEXED WHERE id = ?', (i,)).fetchone()\n\
         \x20   except Exception: continue\n\
         \x20   if r and isinstance(r[0], str) and r[0].isprintable(): print(i, r[0].split(' ')[0])",
    );
    told.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(id, text)| (id.parse().unwrap(), text.to_owned()))
        .collect()
}

#[test]
fn random_bytes_in_the_leaves_of_any_table_or_index_cost_no_other_message() {
    const NAME: &str = "random_bytes_in_the_leaves_of_any_table_or_index_cost_no_other_message";
    if let Some((_, path)) = role() {
        return serve(&path);
    }
    let pattern = World::filled(1200);
    let trees = python_says(
        &pattern.path(),
        "print('\\n'.join(r[0] for r in sqlite3.connect(path).execute(\"SELECT name FROM sqlite_schema WHERE rootpage > 1 ORDER BY name\")))",
    );
    assert!(trees.lines().count() > 15, "{trees}");
    let mut outcomes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for tree in trees.lines() {
        let world = World { folder: tempfile::tempdir().unwrap() };
        python_says(&pattern.path(), &format!("import shutil\nshutil.copy(path, '{}')", world.path().display()));
        damage_leaves(&world.path(), tree);
        let before = readable(&world.path());
        let mut stored = Vec::new();
        for round in 0..2 {
            let mut process = Process::start(NAME, &world.path());
            for n in 0..4 {
                for order in ["read".to_owned(), "search marker7q".to_owned(), format!("append new{round}x{n}q")] {
                    let said = process.ask(&order);
                    if let Some(id) = said.strip_prefix("stored ") {
                        stored.push((id.parse::<i64>().unwrap(), format!("new{round}x{n}q")));
                    }
                    let kind = said.split([' ', '{', '(']).next().unwrap_or_default();
                    assert!(
                        ["stored", "read", "found", "Corrupt", "NotADatabase", "Engine", "Constraint"].contains(&kind),
                        "{tree}: {order}: {said}"
                    );
                    if order.starts_with("search") && kind == "found" {
                        assert!(
                            said.starts_with("found 1")
                                || said.contains("degraded true")
                                || tree.starts_with("messages"),
                            "{tree}: {said}"
                        );
                    }
                    outcomes.entry(tree.to_owned()).or_default().insert(kind.to_owned());
                }
            }
            process.end();
        }
        let after = readable(&world.path());
        for (id, text) in &before {
            assert_eq!(after.get(id), Some(text), "{tree}: message {id} is gone");
        }
        for (id, text) in &stored {
            assert_eq!(after.get(id), Some(text), "{tree}: acknowledged message {id} is gone");
        }
    }
    println!("{outcomes:?}");
    for (tree, kinds) in &outcomes {
        // Of the large ones a damaged page may stand where the root of a new table has to go in a file that gives pages
        // back: such an index cannot be begun anew, and the write is refused.
        if tree.starts_with("messages_fts") && !tree.ends_with("_data") {
            assert!(kinds.contains("stored") && !kinds.contains("Corrupt"), "{tree}: {kinds:?}");
        }
    }
    assert!(outcomes["messages"].contains("Corrupt"), "{outcomes:?}");
}

#[test]
fn damage_that_one_process_finds_stops_its_writes_and_names_the_table() {
    const NAME: &str = "damage_that_one_process_finds_stops_its_writes_and_names_the_table";
    if let Some((_, path)) = role() {
        return serve(&path);
    }
    let world = World::filled(1200);
    damage_leaves(&world.path(), "messages");
    let mut reader = Process::start(NAME, &world.path());
    let mut writer = Process::start(NAME, &world.path());
    let read = reader.ask("read");
    assert!(read.starts_with("Corrupt") && read.contains("part: Some(\"messages\")"), "{read}");
    let before = world.bytes();
    let refused = reader.ask("append after the read");
    assert!(refused.starts_with("Corrupt") && refused.contains("part: Some(\"messages\")"), "{refused}");
    let refused = writer.ask("append into the damaged leaf");
    assert!(refused.starts_with("Corrupt"), "{refused}");
    assert!(writer.ask("append again").starts_with("Corrupt"));
    reader.end();
    writer.end();
    assert_eq!(world.bytes(), before, "neither wrote anything more, not even at its close");
    must_succeed(&support::python(&world.path(), "").output().unwrap());
}
