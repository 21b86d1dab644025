//! Telegram topics: topic mode, bindings of topics to sessions, and tables of older releases.

use std::sync::Barrier;

use hermes_state::{
    Content, Error, NewMessage, NewSession, NewTopicBinding, SessionDb, TopicBinding, TopicCapabilities, Value,
};

use crate::world::{World, on_each_engine};

fn create(db: &SessionDb, ids: &[&str]) {
    for id in ids {
        db.create_session(NewSession::new(*id, "telegram").user_id("u")).expect("creates");
    }
}

fn binding(chat: &str, thread: &str, session: &str) -> NewTopicBinding {
    NewTopicBinding::new(chat, thread, session).user_id("u").session_key(format!("key of {session}"))
}

fn bind(db: &SessionDb, chat: &str, thread: &str, session: &str) {
    db.bind_telegram_topic(binding(chat, thread, session)).expect("binds");
}

fn enable(db: &SessionDb, chat: &str, user: &str) {
    db.enable_telegram_topic_mode(chat, user, TopicCapabilities::default()).expect("enables");
}

fn is_enabled(db: &SessionDb, chat: &str, user: &str) -> bool {
    db.is_telegram_topic_mode_enabled(chat, user).expect("reads")
}

fn get(db: &SessionDb, chat: &str, thread: &str) -> Option<TopicBinding> {
    db.telegram_topic_binding(chat, thread).expect("reads")
}

/// Which session each topic is bound to, as `chat/thread=session`.
fn bound(db: &World) -> String {
    let concat = if is_server(db) { "string_agg(t, ' ')" } else { "group_concat(t, ' ')" };
    db.seen_from_outside(&format!(
        "SELECT COALESCE({concat}, '') FROM (SELECT chat_id || '/' || thread_id || '=' || session_id AS t \
         FROM telegram_dm_topic_bindings ORDER BY chat_id, thread_id) AS topics"
    ))
}

fn is_server(db: &World) -> bool {
    hermes_state::is_url(db.path())
}

/// Makes everything of topics older, so that a change shows.
fn age(db: &mut World) {
    db.behind_its_back(
        "UPDATE telegram_dm_topic_mode SET activated_at = 1, updated_at = 2, capability_checked_at = 3; \
         UPDATE telegram_dm_topic_bindings SET linked_at = 1, updated_at = 2;",
    );
}

fn mode(db: &World, chat: &str) -> String {
    db.seen_from_outside(&format!(
        "SELECT user_id || ' ' || enabled || ' ' || CASE WHEN activated_at > 1000 THEN 'new' ELSE 'old' END || ' ' \
             || CASE WHEN updated_at > 1000 THEN 'new' ELSE 'old' END || ' ' \
             || COALESCE(CAST(has_topics_enabled AS TEXT), '-') || ' ' \
             || COALESCE(CAST(allows_users_to_create_topics AS TEXT), '-') || ' ' \
             || CASE WHEN capability_checked_at > 1000 THEN 'new' ELSE 'old' END \
         FROM telegram_dm_topic_mode WHERE chat_id = '{chat}'"
    ))
}

fn without_topics_everything_reads_as_unbound_and_nothing_is_made(mut db: World) {
    create(&db, &["s"]);
    if is_server(&db) {
        // As in a store of an older release that is only looked at.
        db.behind_its_back("DROP TABLE telegram_dm_topic_mode; DROP TABLE telegram_dm_topic_bindings");
    }
    let looking = db.looking();
    for db in [&*db, &looking] {
        assert!(!is_enabled(db, "c", "u"));
        assert_eq!(get(db, "c", "1"), None);
        assert_eq!(db.list_telegram_topic_bindings_for_chat("c").expect("reads"), []);
        assert_eq!(db.telegram_topic_binding_by_session("s").expect("reads"), None);
        assert!(!db.is_telegram_session_linked_to_topic("s").expect("reads"));
        assert_eq!(db.list_unlinked_telegram_sessions_for_user("u", 10).expect("reads").len(), 1);
    }
    db.disable_telegram_topic_mode("c", true).expect("does nothing");
    assert_eq!(db.delete_telegram_topic_binding("c", "1").expect("does nothing"), 0);
    if !is_server(&db) {
        let tables = "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE '%telegram%'";
        assert_eq!(db.seen_from_outside(tables), "0");
        db.apply_telegram_topic_migration().expect("makes them");
        assert_eq!(
            db.seen_from_outside(tables),
            "6",
            "two tables, each with the index of its key, and two indexes more"
        );
    }
    db.apply_telegram_topic_migration().expect("may be repeated");
    assert_eq!(db.meta("telegram_dm_topic_schema_version").expect("reads").as_deref(), Some("2"));
}

fn enabling_inserts_or_updates_and_activates_once(mut db: World) {
    let known = |has: Option<bool>, allows: Option<bool>| TopicCapabilities {
        has_topics_enabled: has,
        allows_users_to_create_topics: allows,
    };
    db.enable_telegram_topic_mode(-100, 42, known(Some(true), Some(false))).expect("enables");
    assert_eq!(mode(&db, "-100"), "42 1 new new 1 0 new");
    age(&mut db);
    db.disable_telegram_topic_mode(-100, false).expect("disables");
    assert_eq!(mode(&db, "-100"), "42 0 old new 1 0 old");
    age(&mut db);
    db.enable_telegram_topic_mode("-100", "43", known(None, None)).expect("enables");
    assert_eq!(mode(&db, "-100"), "43 1 old new - - new", "what is unknown now is unknown, and checked now");
    assert!(is_enabled(&db, "-100", "43"));
    assert!(!is_enabled(&db, "-100", "42") && !is_enabled(&db, "-1", "43"), "both ids have to be the row's");
}

fn disabling_makes_no_row_and_clears_bindings_on_request(mut db: World) {
    create(&db, &["s1", "s2", "s3"]);
    bind(&db, "c", "1", "s1");
    bind(&db, "d", "1", "s2");
    assert!(!is_enabled(&db, "c", "u"), "binding does not enable");
    db.disable_telegram_topic_mode("c", true).expect("disables");
    assert_eq!(bound(&db), "d/1=s2");
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM telegram_dm_topic_mode"), "0");
    enable(&db, "d", "u");
    age(&mut db);
    db.disable_telegram_topic_mode("d", false).expect("disables");
    assert_eq!((bound(&db).as_str(), mode(&db, "d").as_str()), ("d/1=s2", "u 0 old new - - old"));
}

fn an_unbound_session_binds_to_an_unbound_topic(db: World) {
    create(&db, &["s"]);
    db.bind_telegram_topic(NewTopicBinding::new(-100, 7, "s").user_id(42).session_key("k").managed_mode("manual"))
        .expect("binds");
    let found = get(&db, "-100", "7").expect("is there");
    assert_eq!(found.linked_at, found.updated_at);
    assert!(found.linked_at > 1.7e9);
    let (chat_id, thread_id, user_id) = ("-100".to_owned(), "7".to_owned(), "42".to_owned());
    let (session_key, session_id, managed_mode) = ("k".to_owned(), "s".to_owned(), "manual".to_owned());
    let expected = TopicBinding { chat_id, thread_id, user_id, session_key, session_id, managed_mode, ..found.clone() };
    assert_eq!(found, expected);
    assert_eq!(db.telegram_topic_binding_by_session("s").expect("reads"), Some(expected));
    assert!(db.is_telegram_session_linked_to_topic("s").expect("reads"));
    assert_eq!(get(&db, "-100", "8"), None);
    assert_eq!(db.meta("telegram_dm_topic_schema_version").expect("reads").as_deref(), Some("2"));
}

fn an_unbound_session_takes_over_a_bound_topic(mut db: World) {
    create(&db, &["old", "new"]);
    bind(&db, "c", "1", "old");
    age(&mut db);
    db.bind_telegram_topic(binding("c", "1", "new").user_id("v").managed_mode("manual")).expect("repoints");
    let found = get(&db, "c", "1").expect("is there");
    assert_eq!((found.session_id.as_str(), found.session_key.as_str()), ("new", "key of new"));
    assert_eq!((found.user_id.as_str(), found.managed_mode.as_str(), found.linked_at), ("v", "manual", 1.0));
    assert!(found.updated_at > 1.7e9);
    assert!(!db.is_telegram_session_linked_to_topic("old").expect("reads"));
}

fn binding_again_is_the_same_update(mut db: World) {
    create(&db, &["s"]);
    db.bind_telegram_topic(binding("c", "1", "s").managed_mode("manual")).expect("binds");
    age(&mut db);
    bind(&db, "c", "1", "s");
    let found = get(&db, "c", "1").expect("is there");
    assert_eq!((found.linked_at, found.managed_mode.as_str(), bound(&db).as_str()), (1.0, "auto", "c/1=s"));
    assert!(found.updated_at > 1.7e9);
}

fn a_session_bound_elsewhere_is_refused_and_nothing_changes(db: World) {
    create(&db, &["s1", "s2"]);
    bind(&db, "c", "1", "s1");
    bind(&db, "c", "2", "s2");
    let before = db.list_telegram_topic_bindings_for_chat("c").expect("reads");
    for (chat, thread) in [("c", "3"), ("c", "2"), ("d", "1")] {
        let refused = db.bind_telegram_topic(binding(chat, thread, "s1")).expect_err("refuses");
        assert!(matches!(&refused, Error::SessionHasTopic { session, chat, thread }
            if (session.as_str(), chat.as_str(), thread.as_str()) == ("s1", "c", "1")));
        assert!(refused.to_string().contains("already linked to another Telegram topic"), "{refused}");
    }
    let unknown = db.bind_telegram_topic(binding("c", "1", "nobody"));
    assert!(matches!(unknown, Err(Error::Constraint { code: 787, .. })), "{unknown:?}");
    let nameless = db.bind_telegram_topic(NewTopicBinding::new("c", "1", "s1").user_id("u"));
    assert!(matches!(nameless, Err(Error::Constraint { code: 1299, .. })), "a routing key is required: {nameless:?}");
    assert_eq!(db.list_telegram_topic_bindings_for_chat("c").expect("reads"), before);
}

fn of_many_that_bind_a_session_one_has_it(db: World) {
    create(&db, &["s"]);
    let handles: Vec<SessionDb> = (0..4).map(|_| db.another()).collect();
    for round in 0..5 {
        let barrier = Barrier::new(handles.len());
        let bound: usize = std::thread::scope(|scope| {
            let binding: Vec<_> = handles
                .iter()
                .enumerate()
                .map(|(number, handle)| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        match handle.bind_telegram_topic(binding("c", &number.to_string(), "s")) {
                            Ok(()) => 1,
                            Err(Error::SessionHasTopic { .. }) => 0,
                            Err(error) => panic!("{error}"),
                        }
                    })
                })
                .collect();
            binding.into_iter().map(|one| one.join().expect("binds")).sum()
        });
        assert_eq!(bound, 1, "round {round}");
        let found = db.telegram_topic_binding_by_session("s").expect("reads").expect("is there");
        assert_eq!(db.delete_telegram_topic_binding(found.chat_id, found.thread_id).expect("deletes"), 1);
    }
}

fn bindings_of_a_chat_are_listed_by_their_last_change(mut db: World) {
    create(&db, &["a", "b", "c", "d"]);
    for (thread, session) in [("1", "a"), ("2", "b"), ("3", "c")] {
        bind(&db, "c", thread, session);
    }
    bind(&db, "other", "1", "d");
    db.behind_its_back(
        "UPDATE telegram_dm_topic_bindings SET updated_at = CASE thread_id WHEN '2' THEN 30 ELSE 20 END",
    );
    bind(&db, "c", "3", "c");
    let found = db.list_telegram_topic_bindings_for_chat("c").expect("reads");
    assert_eq!(found.iter().map(|binding| binding.thread_id.as_str()).collect::<Vec<_>>(), ["3", "2", "1"]);
}

fn deleting_the_last_binding_of_a_chat_switches_its_mode_off(mut db: World) {
    create(&db, &["s1", "s2", "s3"]);
    enable(&db, "c", "u");
    enable(&db, "d", "u");
    for (chat, thread, session) in [("c", "1", "s1"), ("c", "2", "s2"), ("d", "1", "s3")] {
        bind(&db, chat, thread, session);
    }
    age(&mut db);
    assert_eq!(db.delete_telegram_topic_binding("c", "9").expect("deletes"), 0);
    assert_eq!(db.delete_telegram_topic_binding("c", "1").expect("deletes"), 1);
    assert_eq!(mode(&db, "c"), "u 1 old old - - old");
    assert_eq!(db.delete_telegram_topic_binding("c", "2").expect("deletes"), 1);
    assert_eq!(mode(&db, "c"), "u 0 old new - - old");
    assert_eq!(db.delete_telegram_topic_binding("c", "2").expect("deletes"), 0);
    assert_eq!((mode(&db, "d").as_str(), bound(&db).as_str()), ("u 1 old old - - old", "d/1=s3"));
}

fn a_removed_session_takes_its_binding_along_and_leaves_the_mode(mut db: World) {
    create(&db, &["s"]);
    enable(&db, "c", "u");
    bind(&db, "c", "1", "s");
    db.behind_its_back(if is_server(&db) {
        "DELETE FROM sessions WHERE id = 's'"
    } else {
        "PRAGMA foreign_keys = ON; DELETE FROM sessions WHERE id = 's'"
    });
    assert_eq!(bound(&db), "");
    assert!(is_enabled(&db, "c", "u"));
}

fn unlinked(db: &SessionDb, limit: i64) -> Vec<String> {
    let found = db.list_unlinked_telegram_sessions_for_user("u", limit).expect("lists");
    found.iter().map(|session| session.id().to_owned()).collect()
}

fn unlinked_sessions_of_a_user_are_listed_by_activity(mut db: World) {
    create(&db, &["quiet", "spoken", "ended", "child", "bound", "tied"]);
    db.create_session(NewSession::new("other user", "telegram").user_id("v")).expect("creates");
    db.create_session(NewSession::new("other source", "Telegram").user_id("u")).expect("creates");
    db.append_message("spoken", NewMessage::new("user", "x").timestamp(900.0)).expect("appends");
    db.append_message("tied", NewMessage::new("user", "x").timestamp(500.0)).expect("appends");
    bind(&db, "another chat", "1", "bound");
    db.behind_its_back(
        "UPDATE sessions SET started_at = 10; UPDATE sessions SET started_at = 500 WHERE id = 'quiet'; \
         UPDATE sessions SET started_at = 400, ended_at = 401, archived = 1 WHERE id = 'ended'; \
         UPDATE sessions SET started_at = 300, parent_session_id = 'ended' WHERE id = 'child'; \
         UPDATE messages SET active = 0 WHERE session_id = 'spoken';",
    );
    let all = ["spoken", "quiet", "tied", "ended", "child"];
    assert_eq!(unlinked(&db, -1), all, "of equal activity the younger first");
    assert_eq!(unlinked(&db, 2), all[..2]);
    assert_eq!(unlinked(&db, 0), Vec::<String>::new());
}

fn an_unlinked_session_has_its_activity_and_a_preview(mut db: World) {
    create(&db, &["s"]);
    let preview = |db: &World| {
        let found = db.list_unlinked_telegram_sessions_for_user("u", 1).expect("lists");
        let columns = found[0].record().columns();
        assert_eq!((&*columns[columns.len() - 2], &*columns[columns.len() - 1]), ("last_active", "preview"));
        found[0].preview().expect("text").to_owned()
    };
    assert_eq!(preview(&db), "");
    db.append_message("s", NewMessage::new("assistant", "no user").timestamp(1.0)).expect("appends");
    db.append_message("s", NewMessage::new("user", Content::None).timestamp(2.0)).expect("appends");
    for (text, expected) in [
        ("\r\n one\ntwo\r ".to_owned(), "one two".to_owned()),
        ("é".repeat(60), "é".repeat(60)),
        ("é".repeat(61), format!("{}...", "é".repeat(60))),
        (format!("   {}", "x".repeat(70)), "x".repeat(60)),
        (format!("{}   ", "x".repeat(60)), "x".repeat(60)),
    ] {
        db.append_message("s", NewMessage::new("user", text).timestamp(10.0)).expect("appends");
        db.append_message("s", NewMessage::new("user", "later").timestamp(11.0)).expect("appends");
        assert_eq!(preview(&db), expected);
        db.behind_its_back("DELETE FROM messages WHERE timestamp > 5");
    }
    let structured = serde_json::json!([{"type": "text", "text": "x"}]);
    db.append_message("s", NewMessage::new("user", structured).timestamp(10.0)).expect("appends");
    assert_eq!(preview(&db), "");
}

fn a_handle_that_only_reads_sees_topics_and_refuses_changes(db: World) {
    create(&db, &["s"]);
    bind(&db, "c", "1", "s");
    let looking = db.looking();
    assert!(get(&looking, "c", "1").is_some());
    for refused in [
        looking.apply_telegram_topic_migration(),
        looking.bind_telegram_topic(binding("c", "1", "s")),
        looking.enable_telegram_topic_mode("c", "u", TopicCapabilities::default()),
        looking.disable_telegram_topic_mode("c", true),
        looking.delete_telegram_topic_binding("c", "1").map(drop),
    ] {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
}

fn the_stamp_is_never_lowered(db: World) {
    let stamp = "telegram_dm_topic_schema_version";
    for (found, left) in [("x", "2"), ("", "2"), ("1", "2"), ("-3", "2"), ("2", "2"), ("3", "3"), ("007", "007")] {
        db.set_meta(stamp, found).expect("sets");
        db.apply_telegram_topic_migration().expect("migrates");
        enable(&db, "c", "u");
        assert_eq!(db.meta(stamp).expect("reads").as_deref(), Some(left), "{found:?}");
    }
    db.set_meta(stamp, Value::Null).expect("sets");
    db.apply_telegram_topic_migration().expect("migrates");
    assert_eq!(db.meta(stamp).expect("reads").as_deref(), Some("2"));
}

on_each_engine! {
    without_topics_everything_reads_as_unbound_and_nothing_is_made
    enabling_inserts_or_updates_and_activates_once
    disabling_makes_no_row_and_clears_bindings_on_request
    an_unbound_session_binds_to_an_unbound_topic
    an_unbound_session_takes_over_a_bound_topic
    binding_again_is_the_same_update
    a_session_bound_elsewhere_is_refused_and_nothing_changes
    of_many_that_bind_a_session_one_has_it
    bindings_of_a_chat_are_listed_by_their_last_change
    deleting_the_last_binding_of_a_chat_switches_its_mode_off
    a_removed_session_takes_its_binding_along_and_leaves_the_mode
    unlinked_sessions_of_a_user_are_listed_by_activity
    an_unlinked_session_has_its_activity_and_a_preview
    a_handle_that_only_reads_sees_topics_and_refuses_changes
    the_stamp_is_never_lowered
}

// Only files have tables of older releases.

const OLD_TABLE: &str = "(chat_id TEXT NOT NULL, thread_id TEXT NOT NULL, user_id TEXT NOT NULL, \
    session_key TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES sessions(id), \
    managed_mode TEXT NOT NULL DEFAULT 'auto', linked_at REAL NOT NULL, updated_at REAL NOT NULL, \
    PRIMARY KEY (chat_id, thread_id))";

fn row(table: &str, chat: &str, thread: &str, session: &str, updated: i64) -> String {
    format!(
        "INSERT INTO {table} (chat_id, thread_id, user_id, session_key, session_id, managed_mode, linked_at, updated_at) \
         VALUES ('{chat}', '{thread}', 'u', 'k', '{session}', 'manual', 1, {updated});"
    )
}

/// A file with sessions `s1` to `s3` and what an older release left of topics in it.
fn left_behind(script: &str) -> World {
    let mut db = World::on_a_file();
    create(&db, &["s1", "s2", "s3"]);
    db.behind_its_back(&format!("PRAGMA foreign_keys = OFF; {script}"));
    db
}

fn old_table() -> String {
    format!(
        "CREATE TABLE telegram_dm_topic_bindings {OLD_TABLE}; \
         CREATE UNIQUE INDEX idx_telegram_dm_topic_bindings_session ON telegram_dm_topic_bindings(session_id); \
         INSERT INTO state_meta VALUES ('telegram_dm_topic_schema_version', '1');"
    ) + &row("telegram_dm_topic_bindings", "c", "1", "s1", 5)
        + &row("telegram_dm_topic_bindings", "c", "2", "s2", 6)
}

/// Whatever was left, afterwards bindings go with their sessions, and nothing is left over.
fn must_be_migrated(db: &World, expected: &str) {
    db.apply_telegram_topic_migration().expect("migrates");
    assert_eq!(bound(db), expected);
    let cascade = "SELECT group_concat(on_delete) FROM pragma_foreign_key_list('telegram_dm_topic_bindings')";
    assert_eq!(db.seen_from_outside(cascade), "CASCADE");
    let names = "SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_master \
                 WHERE name LIKE '%telegram%' AND name NOT LIKE 'sqlite%' ORDER BY name)";
    assert_eq!(
        db.seen_from_outside(names),
        "idx_telegram_dm_topic_bindings_session idx_telegram_dm_topic_bindings_user telegram_dm_topic_bindings \
         telegram_dm_topic_mode"
    );
    assert_eq!(db.meta("telegram_dm_topic_schema_version").expect("reads").as_deref(), Some("2"));
    db.apply_telegram_topic_migration().expect("may be repeated");
    assert_eq!(bound(db), expected);
}

#[test]
fn a_table_without_cascade_is_rebuilt_with_every_column() {
    let db = left_behind(
        &(old_table()
            + "ALTER TABLE telegram_dm_topic_bindings ADD COLUMN \"of a later release\" TEXT DEFAULT 'x'; \
               UPDATE telegram_dm_topic_bindings SET \"of a later release\" = 'kept' WHERE thread_id = '2';"),
    );
    assert_eq!(get(&db, "c", "1").expect("old tables are read too").session_id, "s1");
    must_be_migrated(&db, "c/1=s1 c/2=s2");
    let found = get(&db, "c", "2").expect("is there");
    assert_eq!((found.linked_at, found.updated_at, found.managed_mode.as_str()), (1.0, 6.0, "manual"));
    let extra = "SELECT group_concat(\"of a later release\") FROM telegram_dm_topic_bindings";
    assert!(["x,kept", "kept,x"].contains(&db.seen_from_outside(extra).as_str()));
}

#[test]
fn bindings_of_gone_sessions_are_left_out_of_the_rebuilding() {
    let gone = row("telegram_dm_topic_bindings", "c", "3", "gone", 7);
    must_be_migrated(&left_behind(&(old_table() + &gone)), "c/1=s1 c/2=s2");
}

#[test]
fn a_copy_that_was_left_beside_the_whole_old_table_is_dropped() {
    for rows in [String::new(), row("telegram_dm_topic_bindings_new", "c", "9", "s3", 9)] {
        let copy = format!("CREATE TABLE telegram_dm_topic_bindings_new {OLD_TABLE}; {rows}");
        must_be_migrated(&left_behind(&(old_table() + &copy)), "c/1=s1 c/2=s2");
    }
}

#[test]
fn a_copy_that_is_all_there_is_left_is_taken_in() {
    let copy = format!("CREATE TABLE telegram_dm_topic_bindings_new {OLD_TABLE};")
        + &row("telegram_dm_topic_bindings_new", "c", "1", "s1", 5)
        + &row("telegram_dm_topic_bindings_new", "c", "2", "s2", 5)
        + &row("telegram_dm_topic_bindings_new", "c", "3", "gone", 5);
    must_be_migrated(&left_behind(&copy), "c/1=s1 c/2=s2");
    // A process that came between has made the table anew, and what it bound since stays.
    let db = left_behind("");
    bind(&db, "c", "1", "s3");
    bind(&db, "c", "4", "s2");
    let mut db = db;
    db.behind_its_back(&format!("PRAGMA foreign_keys = OFF; {copy}"));
    must_be_migrated(&db, "c/1=s3 c/4=s2");
}

#[test]
fn of_several_topics_of_one_session_the_last_changed_is_kept() {
    let doubled = "DROP INDEX idx_telegram_dm_topic_bindings_session;".to_owned()
        + &row("telegram_dm_topic_bindings", "c", "3", "s1", 50);
    must_be_migrated(&left_behind(&(old_table() + &doubled)), "c/2=s2 c/3=s1");
}

#[test]
fn a_table_of_a_newer_release_is_left_as_it_is() {
    let db = left_behind(&old_table());
    db.set_meta("telegram_dm_topic_schema_version", "3").expect("sets");
    db.apply_telegram_topic_migration().expect("makes what is missing");
    let cascade = "SELECT group_concat(on_delete) FROM pragma_foreign_key_list('telegram_dm_topic_bindings')";
    assert_eq!(db.seen_from_outside(cascade), "NO ACTION");
    enable(&db, "c", "u");
    assert!(is_enabled(&db, "c", "u"));
}

#[test]
fn enabling_and_binding_migrate_as_well() {
    let db = left_behind(&old_table());
    bind(&db, "c", "3", "s3");
    must_be_migrated(&db, "c/1=s1 c/2=s2 c/3=s3");
    let db = left_behind(&old_table());
    enable(&db, "c", "u");
    must_be_migrated(&db, "c/1=s1 c/2=s2");
}

/// Half a migration is none: what refuses to fit in the middle of it leaves the old table whole.
#[test]
fn a_migration_that_fails_changes_nothing() {
    let mut db = left_behind(&(old_table() + "CREATE VIEW telegram_dm_topic_bindings_new AS SELECT 1;"));
    db.behind_its_back("CREATE TABLE idx_telegram_dm_topic_bindings_user (x)");
    let refused = db.apply_telegram_topic_migration();
    assert!(matches!(refused, Err(Error::Engine { .. })), "{refused:?}");
    assert_eq!(bound(&db), "c/1=s1 c/2=s2");
    assert_eq!(db.meta("telegram_dm_topic_schema_version").expect("reads").as_deref(), Some("1"));
    db.behind_its_back("DROP TABLE idx_telegram_dm_topic_bindings_user; DROP VIEW telegram_dm_topic_bindings_new");
    must_be_migrated(&db, "c/1=s1 c/2=s2");
}
