//! Opening: what is created and how, what is refused and in which words, and that looking changes nothing.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use hermes_state::{Error, MessageQuery, NewMessage, NewSession, OpenOptions, SessionDb, SessionQuery};
use support::{names_in, python_says, python_started};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A closed store with one message.
fn a_store(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    db.append_message("s", NewMessage::new("user", "hello")).expect("appends");
}

/// Opens it so that what is in the way is said, and not waited for with the transcripts spooled.
fn open_or_say_why(path: &Path) -> hermes_state::Result<SessionDb> {
    OpenOptions::new().spool(false).open(path)
}

fn at_once<T>(open: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = open();
    assert!(started.elapsed() < Duration::from_secs(2), "took {:?}", started.elapsed());
    result
}

#[cfg(unix)]
#[test]
fn new_files_and_folders_are_for_their_owner_only_and_others_keep_their_modes() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    let path = folder.path().join("a/b/state.db");
    std::fs::create_dir(folder.path().join("a")).expect("a folder");
    std::fs::set_permissions(folder.path().join("a"), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let db = SessionDb::open(&path).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    assert_eq!(mode(&folder.path().join("a")), 0o755);
    assert_eq!(mode(&folder.path().join("a/b")), 0o700);
    for file in ["state.db", "state.db-wal", "state.db-shm"] {
        assert_eq!(mode(&folder.path().join("a/b").join(file)), 0o600, "{file}");
    }
    db.close().expect("closes");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("a mode");
    drop(SessionDb::open(&path).expect("opens again"));
    assert_eq!(mode(&path), 0o640);
}

#[test]
fn settings_are_those_of_a_durable_shared_store() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    let says = python_says(
        &path,
        "c = sqlite3.connect(path)\nprint([c.execute('PRAGMA ' + p).fetchone()[0] for p in ('journal_mode', 'auto_vacuum', 'page_size', 'user_version', 'application_id')])",
    );
    assert_eq!(says, "['wal', 2, 4096, 0, 0]");
}

#[test]
fn a_file_that_exists_keeps_its_auto_vacuum_also_after_a_vacuum() {
    let folder = folder();
    let path = folder.path().join("state.db");
    python_says(&path, "c = sqlite3.connect(path)\nc.execute('CREATE TABLE other (x)')\nc.commit()");
    a_store(&path);
    assert_eq!(
        python_says(
            &path,
            "c = sqlite3.connect(path)\nc.execute('VACUUM')\nprint(c.execute('PRAGMA auto_vacuum').fetchone()[0])"
        ),
        "0"
    );
}

#[test]
fn a_directory_a_text_file_and_a_truncated_store_are_refused_at_once_each_in_its_own_words() {
    let folder = folder();
    let directory = folder.path().join("directory.db");
    std::fs::create_dir(&directory).expect("a folder");
    let error = at_once(|| open_or_say_why(&directory)).expect_err("is a directory");
    assert!(matches!(error, Error::CannotOpen { .. }), "{error:?}");
    assert!(
        error.to_string().starts_with("unable to open database file") && error.to_string().contains("is a directory")
    );

    let text = folder.path().join("text.db");
    python_says(&text, "open(path, 'w').write('just some notes, far from a database\\n' * 100)");
    let error = at_once(|| open_or_say_why(&text)).expect_err("is text");
    assert!(matches!(error, Error::NotADatabase { .. }), "{error:?}");
    assert_eq!(python_says(&text, "print(len(open(path).readlines()))"), "100", "and it is left alone");

    let truncated = folder.path().join("truncated.db");
    a_store(&truncated);
    python_says(&truncated, "os.truncate(path, 4096 * 3)");
    let error = at_once(|| open_or_say_why(&truncated)).expect_err("is truncated");
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");

    let no_folder = text.join("state.db");
    let error = at_once(|| open_or_say_why(&no_folder)).expect_err("has a file for a folder");
    assert!(matches!(error, Error::Directory { .. }), "{error:?}");
}

#[test]
fn an_empty_file_becomes_a_store_but_not_beside_a_log_that_holds_data() {
    let folder = folder();
    let empty = folder.path().join("empty.db");
    python_says(&empty, "open(path, 'w')");
    a_store(&empty);
    assert_eq!(SessionDb::open(&empty).expect("opens").message_count(None).expect("counts"), 1);

    let lost = folder.path().join("lost.db");
    python_says(&lost, "open(path, 'w')\nopen(path + '-wal', 'w').write('x' * 5000)");
    let error = at_once(|| open_or_say_why(&lost)).expect_err("was truncated");
    assert!(matches!(&error, Error::Corrupt { .. }) && error.to_string().contains("truncated"), "{error}");
}

#[test]
fn a_missing_file_is_not_created_by_looking() {
    let folder = folder();
    let error = SessionDb::open_read_only(folder.path().join("state.db")).expect_err("is missing");
    assert!(matches!(error, Error::CannotOpen { .. }), "{error:?}");
    assert!(error.to_string().starts_with("unable to open database file"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_newer_schema_is_read_and_not_written_and_both_versions_are_named() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    python_says(&path, "c = sqlite3.connect(path)\nc.execute('UPDATE schema_version SET version = 41')\nc.commit()");
    let before = python_says(&path, "print(hash(open(path, 'rb').read()))\n").len();
    let db = SessionDb::open(&path).expect("opens for reading");
    assert_eq!(db.messages("s", &MessageQuery::default()).expect("reads").len(), 1);
    let error = db.append_message("s", NewMessage::new("user", "no")).expect_err("is refused");
    assert!(matches!(error, Error::TooNew { found: 41, supported: 23, .. }), "{error:?}");
    assert!(error.to_string().contains("41") && error.to_string().contains("23"));
    assert!(before > 0);
    drop(db);
    assert_eq!(
        python_says(&path, "print(sqlite3.connect(path).execute('SELECT version FROM schema_version').fetchall())"),
        "[(41,)]"
    );
}

const STATE: &str = "import hashlib\n\
    def state():\n    names = sorted(os.listdir(os.path.dirname(path)))\n    \
    files = [os.path.join(os.path.dirname(path), n) for n in names]\n    \
    return [(n, os.stat(f).st_ino, os.stat(f).st_mtime_ns if not n.endswith('-shm') else 0, hashlib.sha256(open(f, 'rb').read()).hexdigest() if not n.endswith('-shm') else '') for n, f in zip(names, files)]\n\
    print(state())";

fn look(path: &Path) {
    let db = SessionDb::open_read_only(path).expect("opens to look");
    assert_eq!(db.messages("s", &MessageQuery::default()).expect("reads").len(), 1);
    assert_eq!(db.list_sessions(&SessionQuery::default()).expect("lists").len(), 1);
    db.status().expect("looks");
    let error = db.append_message("s", NewMessage::new("user", "no")).expect_err("only looks");
    let text = error.to_string();
    assert!(text.contains("attempt to write a readonly database") && text.contains("state.db"), "{text}");
}

#[test]
fn looking_at_a_closed_store_leaves_it_as_it_was() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    let before = python_says(&path, STATE);
    look(&path);
    assert_eq!(python_says(&path, STATE), before);
}

#[test]
fn looking_at_a_store_in_use_leaves_its_files_and_their_inodes() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    let mut writer = python_started(
        &path,
        "c = sqlite3.connect(path, isolation_level=None)\nc.execute(\"INSERT INTO state_meta VALUES ('k', 'v')\")\nprint('idle', flush=True)\ntime.sleep(30)",
    );
    let before = python_says(&path, STATE);
    look(&path);
    assert_eq!(python_says(&path, STATE), before);
    writer.kill().expect("killed");
    writer.wait().expect("reaped");
}

#[test]
fn a_path_with_characters_of_a_uri_is_the_path_and_nothing_else() {
    let folder = folder();
    let path = folder.path().join("what?is#this%20x.db");
    a_store(&path);
    look_at(&path);
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert!(names.iter().all(|name| name.to_string_lossy().starts_with("what?is#this%20x.db")), "{names:?}");
}

fn look_at(path: &Path) {
    let db = SessionDb::open_read_only(path).expect("opens to look");
    assert_eq!(db.message_count(Some("s")).expect("counts"), 1);
}

#[test]
fn a_store_in_memory_is_private_and_ends_with_its_handle() {
    let one = SessionDb::open(":memory:").expect("opens");
    let other = SessionDb::open(":memory:").expect("opens");
    one.create_session(NewSession::new("s", "cli")).expect("creates");
    one.append_message("s", NewMessage::new("user", "here")).expect("appends");
    assert_eq!(one.message_count(None).expect("counts"), 1);
    assert_eq!(other.message_count(None).expect("counts"), 0);
}

#[test]
fn a_closed_handle_says_so_and_closing_twice_is_nothing() {
    let folder = folder();
    let db = SessionDb::open(folder.path().join("state.db")).expect("opens");
    db.close().expect("closes");
    db.close().expect("closes again");
    assert!(matches!(db.message_count(None), Err(Error::Closed { .. })));
    assert!(matches!(db.set_meta("k", "v"), Err(Error::Closed { .. })));
}

#[test]
fn the_last_close_of_all_leaves_one_file_with_everything_in_it() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    assert_eq!(names_in(folder.path()), ["state.db", "state.db-siblings"]);
}

#[test]
fn a_store_replaced_under_a_live_handle_acknowledges_nothing_more() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    let db = open_or_say_why(&path).expect("opens");
    db.append_message("s", NewMessage::new("user", "fine")).expect("appends");
    python_says(&path, "import shutil\nshutil.copy(path, path + '.new')\nos.replace(path + '.new', path)");
    let error = db.append_message("s", NewMessage::new("user", "lost?")).expect_err("the file is another");
    assert!(matches!(&error, Error::Replaced { .. }), "{error:?}");
}

#[test]
fn a_log_removed_under_a_live_handle_stops_acknowledging() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    let db = open_or_say_why(&path).expect("opens");
    db.append_message("s", NewMessage::new("user", "fine")).expect("appends");
    python_says(&path, "os.unlink(path + '-wal')");
    let error = db.append_message("s", NewMessage::new("user", "lost?")).expect_err("the log is gone");
    assert!(matches!(&error, Error::Replaced { .. }) && error.to_string().contains("-wal"), "{error}");
    // A handle that joins the others on the same file would share their fate; it says so at once.
    let joined = open_or_say_why(&path).expect_err("the old handle lives");
    assert!(matches!(&joined, Error::Replaced { .. }), "{joined:?}");
    db.close().expect("closes");
    let anew = open_or_say_why(&path).expect("opens anew");
    anew.append_message("s", NewMessage::new("user", "goes on")).expect("appends");
}

#[cfg(unix)]
#[test]
fn a_link_leads_to_one_store_whether_its_file_is_there_yet_or_not() {
    let folder = folder();
    let (file, link) = (folder.path().join("real.db"), folder.path().join("link.db"));
    std::os::unix::fs::symlink("real.db", &link).expect("a link");
    a_store(&link);
    let both = [SessionDb::open(&file).expect("opens"), SessionDb::open(&link).expect("opens")];
    assert_eq!(both[0].path(), both[1].path());
    both[1].append_message("s", NewMessage::new("user", "by the link")).expect("appends");
    assert_eq!(both[0].message_count(None).expect("counts"), 2);
}

/// Whoever closes a store last locks it for itself while it merges the log; whoever looks at that moment waits.
#[test]
fn looking_waits_for_one_that_is_just_closing() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    // A rollback journal, whose exclusive lock shuts readers out for as long as it is held.
    let mut closing = python_started(
        &path,
        "c = sqlite3.connect(path, isolation_level=None)\nc.execute('PRAGMA journal_mode=DELETE').fetchall()\n\
         c.execute('BEGIN EXCLUSIVE')\nprint('locked', flush=True)\ntime.sleep(1)\nc.execute('COMMIT')",
    );
    let started = Instant::now();
    look_at(&path);
    assert!(started.elapsed() > Duration::from_millis(500), "there was something to wait for");
    closing.wait().expect("ends");
}

/// Another process makes the store anew while a handle on the old one lives: its close must not bring the old state back.
#[test]
fn a_stale_handle_writes_nothing_over_what_others_have_stored_since() {
    for looks in [false, true] {
        let folder = folder();
        let path = folder.path().join("state.db");
        a_store(&path);
        let stale = if looks { SessionDb::open_read_only(&path) } else { open_or_say_why(&path) }.expect("opens");
        if looks {
            // Written through the log that is about to be removed.
            python_says(
                &path,
                "c = sqlite3.connect(path)\nc.execute(\"INSERT INTO state_meta VALUES ('old', '1')\")\nc.commit()\nos._exit(0)",
            );
        } else {
            for n in 0..20 {
                stale.append_message("s", NewMessage::new("user", n.to_string())).expect("appends");
            }
        }
        python_says(
            &path,
            "os.unlink(path + '-wal')\nos.unlink(path + '-shm')\n\
             c = sqlite3.connect(path)\nc.execute(\"INSERT INTO sessions (id, source, started_at) VALUES ('new', 'cli', 1.0)\")\n\
             c.executemany(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('new', 'user', ?, 1.0)\", [(str(n),) for n in range(500)])\n\
             c.commit()\nc.close()",
        );
        if !looks {
            let refused = stale.append_message("s", NewMessage::new("user", "no"));
            assert!(matches!(refused, Err(Error::Replaced { .. })), "{refused:?}");
        }
        let read = stale.message_count(None);
        assert!(matches!(read, Err(Error::Replaced { .. })), "{read:?}");
        stale.close().expect("closes");
        assert_eq!(
            python_says(
                &path,
                "c = sqlite3.connect(path)\nprint(c.execute(\"SELECT COUNT(*) FROM messages WHERE session_id = 'new'\").fetchone()[0], c.execute('PRAGMA integrity_check').fetchone()[0])"
            ),
            "500 ok",
            "looks: {looks}"
        );
    }
}

#[test]
fn a_store_whose_file_is_gone_while_its_log_holds_data_is_not_begun_anew() {
    let folder = folder();
    let path = folder.path().join("state.db");
    python_says(&path, "open(path + '-wal', 'w').write('x' * 5000)");
    let error = at_once(|| open_or_say_why(&path)).expect_err("the file is missing");
    assert!(matches!(&error, Error::Corrupt { .. }) && error.to_string().contains("is missing"), "{error}");
    assert!(!path.exists(), "and nothing was created");
}

#[test]
fn a_store_truncated_to_nothing_under_a_live_handle_acknowledges_nothing_more() {
    let folder = folder();
    let path = folder.path().join("state.db");
    a_store(&path);
    let db = open_or_say_why(&path).expect("opens");
    python_says(&path, "os.truncate(path, 0)");
    let error = db.append_message("s", NewMessage::new("user", "lost?")).expect_err("there is nothing left");
    assert!(matches!(&error, Error::Replaced { .. }) && error.to_string().contains("truncated"), "{error}");
}

/// Shared memory belongs to a log; asking for it would make it, and hold up commits.
#[test]
fn a_store_without_a_log_is_written_without_shared_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let db = OpenOptions::new().rollback_journal(true).open(&path).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    db.append_message("s", NewMessage::new("user", "x")).expect("appends");
    assert_eq!(db.message_count(None).expect("counts"), 1);
    let names = names_in(folder.path());
    assert!(!names.iter().any(|name| name == "state.db-shm" || name == "state.db-wal"), "{names:?}");
}

#[cfg(not(feature = "postgres"))]
#[test]
fn without_the_engine_for_servers_a_url_is_refused_says_what_to_build_and_is_no_file() {
    use hermes_state::ServerTrouble;
    let url = "postgresql://nobody:secret@127.0.0.1/agents";
    for read_only in [false, true] {
        let refused = OpenOptions::new().read_only(read_only).open(url).expect_err("is refused");
        assert!(matches!(refused, Error::Server { trouble: ServerTrouble::NotBuilt, .. }), "{refused:?}");
        let said = refused.to_string();
        assert!(said.contains("feature `postgres`") && !said.contains("secret"), "{said}");
    }
    assert!(!Path::new("postgresql:").exists());
}
