//! Gateway sessions: their peers, the routing index, and finding the session that a message belongs to.

use std::collections::BTreeMap;

use hermes_state::{
    Error, GatewayPeer, GatewaySessionQuery, NewMessage, NewSession, Session, SessionDb, SessionOrigin, Value,
};

use crate::world::{World, on_each_engine};

/// A gateway session, with the given columns set from outside.
struct Made {
    id: &'static str,
    started: i64,
    columns: &'static str,
}

const fn made(id: &'static str, started: i64, columns: &'static str) -> Made {
    Made { id, started, columns }
}

/// Makes sessions of `telegram` with routing key `k` and chat `c`, and then sets what each has otherwise.
fn make(db: &mut World, sessions: &[Made]) {
    let mut script = String::new();
    for Made { id, started, columns } in sessions {
        db.create_session(NewSession::new(*id, "telegram").session_key("k").chat_id("c").chat_type("dm"))
            .expect("creates");
        script.push_str(&format!("UPDATE sessions SET started_at = {started}"));
        if !columns.is_empty() {
            script.push_str(&format!(", {columns}"));
        }
        script.push_str(&format!(" WHERE id = '{id}';\n"));
    }
    db.behind_its_back(&script);
}

fn get(db: &SessionDb, id: &str) -> Session {
    db.session(id).expect("reads").expect("is there")
}

fn columns(db: &SessionDb, id: &str) -> Vec<Value> {
    let session = get(db, id);
    let names =
        ["source", "session_key", "user_id", "chat_id", "chat_type", "thread_id", "display_name", "origin_json"];
    names.iter().map(|name| session.record().get(name).cloned().expect("a column")).collect()
}

fn list(db: &SessionDb, platform: Option<&str>, active_only: bool) -> Vec<String> {
    let query = GatewaySessionQuery { platform: platform.map(str::to_owned), active_only };
    let found = db.list_gateway_sessions(&query).expect("lists");
    found.iter().map(|session| session.id().to_owned()).collect()
}

fn recording_a_peer_overwrites_what_tells_peers_apart_and_keeps_what_is_shown(db: World) {
    db.create_session(NewSession::new("s", "cli").user_id("old")).expect("creates");
    let whole = GatewayPeer::new("telegram", "k1")
        .user_id("u")
        .chat_id(-100)
        .chat_type("group")
        .thread_id("7")
        .display_name("Harbour")
        .origin_json("{\"a\": 1}");
    db.record_gateway_session_peer("s", whole).expect("records");
    let texts = |values: [Option<&str>; 8]| values.map(Value::from).to_vec();
    let (name, origin) = (Some("Harbour"), Some("{\"a\": 1}"));
    assert_eq!(
        columns(&db, "s"),
        texts([Some("telegram"), Some("k1"), Some("u"), Some("-100"), Some("group"), Some("7"), name, origin])
    );
    db.record_gateway_session_peer("s", GatewayPeer::new("slack", "k2")).expect("records");
    assert_eq!(columns(&db, "s"), texts([Some("slack"), Some("k2"), None, None, None, None, name, origin]));
    let empty = GatewayPeer::new("slack", "k2").display_name("").origin_json("");
    db.record_gateway_session_peer("s", empty).expect("records");
    assert_eq!(columns(&db, "s")[6..], texts([Some(""); 8])[6..], "an empty text overwrites");
}

fn recording_a_peer_needs_a_session_a_key_and_a_source(db: World) {
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    let before = get(&db, "s");
    for key in [Value::Null, "".into()] {
        db.record_gateway_session_peer("s", GatewayPeer::new("telegram", key)).expect("does nothing");
    }
    for id in [Value::Null, "".into(), "nobody".into()] {
        db.record_gateway_session_peer(id, GatewayPeer::new("telegram", "k")).expect("does nothing");
    }
    let refused = db.record_gateway_session_peer("s", GatewayPeer::new(Value::Null, "k"));
    assert!(matches!(refused, Err(Error::Constraint { code: 1299, .. })), "{refused:?}");
    assert_eq!(get(&db, "s"), before);
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM sessions"), "1", "no row is created");
}

fn entries(db: &SessionDb, scope: &str) -> BTreeMap<String, String> {
    db.load_gateway_routing_entries(scope).expect("loads")
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, entry)| ((*key).to_owned(), (*entry).to_owned())).collect()
}

fn a_routing_entry_is_inserted_or_overwritten_and_never_read(db: World) {
    db.save_gateway_routing_entry("k", "no json", "").expect("saves");
    db.save_gateway_routing_entry("k", "{}", "/a").expect("saves");
    let age = "SELECT CASE WHEN updated_at > 1.7e9 THEN 'now' ELSE 'old' END FROM gateway_routing WHERE scope = ''";
    assert_eq!(db.seen_from_outside(age), "now");
    db.save_gateway_routing_entry("k", "[", "").expect("overwrites");
    for (key, entry) in [("", "x"), ("x", "")] {
        db.save_gateway_routing_entry(key, entry, "").expect("does nothing");
    }
    assert_eq!((entries(&db, ""), entries(&db, "/a")), (pairs(&[("k", "[")]), pairs(&[("k", "{}")])));
    let refused = db.save_gateway_routing_entry("k", "x", Value::Null);
    assert!(matches!(refused, Err(Error::Constraint { .. })), "{refused:?}");
    assert_eq!(db.load_gateway_routing_entries(Value::Null).expect("loads"), BTreeMap::new());
}

fn replacing_a_scope_leaves_others_alone_and_gives_one_time(db: World) {
    let many: Vec<(String, String)> = (0..150).map(|number| (format!("k{number}"), number.to_string())).collect();
    db.save_gateway_routing_entry("old", "x", "/a").expect("saves");
    db.save_gateway_routing_entry("old", "x", "/b").expect("saves");
    let with_empty = many.iter().map(|(key, entry)| (key.as_str(), entry.as_str())).chain([("", "x"), ("x", "")]);
    db.replace_gateway_routing_entries(with_empty, "/a").expect("replaces");
    assert_eq!(entries(&db, "/a"), many.into_iter().collect());
    assert_eq!(entries(&db, "/b"), pairs(&[("old", "x")]));
    let times = "SELECT COUNT(DISTINCT updated_at) FROM gateway_routing WHERE scope = '/a'";
    assert_eq!(db.seen_from_outside(times), "1");
    db.replace_gateway_routing_entries(Vec::<(&str, &str)>::new(), "/a").expect("clears");
    assert_eq!((entries(&db, "/a"), entries(&db, "/b")), (BTreeMap::new(), pairs(&[("old", "x")])));
}

fn replacing_changes_nothing_if_one_pair_fails(db: World) {
    db.save_gateway_routing_entry("old", "x", "/a").expect("saves");
    let refused = db.replace_gateway_routing_entries([("k", "1"), ("j", "2"), ("k", "3")], "/a");
    assert!(matches!(refused, Err(Error::Constraint { .. })), "{refused:?}");
    assert_eq!(entries(&db, "/a"), pairs(&[("old", "x")]));
}

/// Readers see the old scope or the new one, and the last of two writers has the whole of it.
fn replacing_is_atomic_for_readers_and_other_writers(db: World) {
    let scope = |writer: usize| (0..80).map(move |key| (format!("k{key}"), writer.to_string()));
    db.replace_gateway_routing_entries(scope(0), "/a").expect("replaces");
    let other = db.looking();
    std::thread::scope(|threads| {
        for writer in 1..3 {
            let db = &db;
            threads.spawn(move || {
                for _ in 0..10 {
                    db.replace_gateway_routing_entries(scope(writer), "/a").expect("replaces");
                }
            });
        }
        for _ in 0..40 {
            let seen = entries(&other, "/a");
            let writers: std::collections::BTreeSet<&String> = seen.values().collect();
            assert_eq!((seen.len(), writers.len()), (80, 1));
        }
    });
}

fn deleting_routing_entries_passes_over_unknown_keys(db: World) {
    let all: Vec<(String, &str)> = (0..100).map(|number| (format!("k{number}"), "x")).collect();
    db.replace_gateway_routing_entries(all.clone(), "/a").expect("replaces");
    db.save_gateway_routing_entry("k1", "x", "/b").expect("saves");
    db.delete_gateway_routing_entries(Vec::<&str>::new(), "/a").expect("does nothing");
    let keys = all.iter().map(|(key, _)| key.as_str()).filter(|key| *key != "k7").chain(["nobody"]);
    db.delete_gateway_routing_entries(keys, "/a").expect("deletes");
    assert_eq!((entries(&db, "/a"), entries(&db, "/b")), (pairs(&[("k7", "x")]), pairs(&[("k1", "x")])));
}

fn the_newest_of_a_key_is_chosen_before_anything_is_left_out(mut db: World) {
    make(
        &mut db,
        &[
            made("live but older", 10, ""),
            made("ended", 20, "ended_at = 21"),
            made("tied", 30, "session_key = 't'"),
            made("tied too", 30, "session_key = 't'"),
            made("elsewhere", 40, "session_key = 'e', source = 'Slack'"),
            made("here", 39, "session_key = 'e'"),
            made("empty key", 50, "session_key = ''"),
            made("archived", 60, "session_key = 'a', archived = 1"),
            made("no key", 70, "session_key = NULL"),
        ],
    );
    assert_eq!(list(&db, None, true), ["archived", "empty key", "elsewhere", "tied", "tied too"]);
    assert_eq!(list(&db, Some(""), false), ["archived", "empty key", "elsewhere", "tied", "tied too", "ended"]);
    assert_eq!(list(&db, Some("TELEGRAM"), false), ["archived", "empty key", "tied", "tied too", "ended"]);
    assert_eq!(list(&db, Some("slack"), true), ["elsewhere"], "case is ignored on both sides");
    assert_eq!(list(&db, Some("irc"), true), Vec::<String>::new());
    assert_eq!(GatewaySessionQuery::default(), GatewaySessionQuery { platform: None, active_only: true });
}

fn a_listing_goes_by_the_newest_message_of_any_state(mut db: World) {
    make(
        &mut db,
        &[made("quiet", 500, "session_key = 'q'"), made("spoken", 10, ""), made("undone", 20, "session_key = 'u'")],
    );
    db.append_message("spoken", NewMessage::new("user", "x").timestamp(900.0)).expect("appends");
    db.append_message("undone", NewMessage::new("user", "x").timestamp(700.5)).expect("appends");
    db.behind_its_back("UPDATE messages SET active = 0 WHERE session_id = 'undone'");
    let found = db.list_gateway_sessions(&GatewaySessionQuery::default()).expect("lists");
    let seen: Vec<_> = found.iter().map(|session| (session.id(), session.last_active())).collect();
    assert_eq!(seen, [("spoken", Some(900.0)), ("undone", Some(700.5)), ("quiet", Some(500.0))]);
    let columns = found[0].record().columns();
    assert_eq!((columns.len(), &*columns[46]), (get(&db, "quiet").record().columns().len() + 1, "last_active"));
}

fn find(db: &SessionDb, origin: SessionOrigin) -> Option<String> {
    db.find_session_by_origin(&origin).expect("finds")
}

fn an_origin_finds_live_gateway_sessions_of_its_chat(mut db: World) {
    make(
        &mut db,
        &[
            made("ended", 90, "ended_at = 91"),
            made("no key", 80, "session_key = NULL"),
            made("other chat", 70, "chat_id = 'd'"),
            made("other platform", 60, "source = 'slack'"),
            made("thread", 50, "thread_id = '7', archived = 1"),
            made("empty thread", 40, "thread_id = ''"),
            made("no thread", 30, ""),
        ],
    );
    let origin = |thread: Option<&str>| SessionOrigin {
        thread_id: thread.map(str::to_owned),
        ..SessionOrigin::new("TeleGram", "c")
    };
    assert_eq!(find(&db, origin(None)).as_deref(), Some("thread"), "any thread; archived ones count");
    assert_eq!(find(&db, origin(Some("7"))).as_deref(), Some("thread"));
    assert_eq!(find(&db, origin(Some(""))).as_deref(), Some("empty thread"), "NULL and the empty text are no thread");
    assert_eq!(find(&db, origin(Some("8"))), None);
    assert_eq!(find(&db, SessionOrigin::new("", "c")), None);
    assert_eq!(find(&db, SessionOrigin::new("telegram", "")), None);
    assert_eq!(find(&db, SessionOrigin::new("telegram", "nowhere")), None);
}

/// Who asks, whose sessions there are (oldest first), and which of them is found.
type Asked = (Option<&'static str>, &'static [Option<&'static str>], Option<usize>);

/// The whole table.
fn an_origin_is_resolved_only_where_it_is_clear_whose_session_it_is(mut db: World) {
    let asked_for: [Asked; 16] = [
        (Some("u"), &[], None),
        (None, &[], None),
        (Some("u"), &[Some("u"), Some("v"), Some("u"), Some("w")], Some(2)),
        (Some("u"), &[Some("v")], Some(0)),
        (Some("u"), &[None], Some(0)),
        (Some("u"), &[Some(" u ")], Some(0)),
        (Some("u"), &[Some("v"), Some("w")], None),
        (Some("u"), &[None, None], None),
        (Some("u"), &[Some(" u "), Some("v")], None),
        (None, &[Some("v")], Some(0)),
        (Some(""), &[Some("v")], Some(0)),
        (None, &[None, Some(""), Some("  ")], Some(2)),
        (None, &[Some("v"), Some(" v\t"), None], Some(2)),
        (Some(""), &[Some("v"), Some("v")], Some(1)),
        (None, &[Some("v"), Some("w")], None),
        (Some(""), &[Some("v"), Some("w"), Some("w")], None),
    ];
    for (row, (_, owners, _)) in asked_for.iter().enumerate() {
        for (place, owner) in owners.iter().enumerate() {
            let session = NewSession::new(format!("{row}-{place}"), "telegram").session_key("k");
            db.create_session(session.chat_id(format!("c{row}")).user_id(*owner)).expect("creates");
        }
    }
    let all =
        asked_for.iter().enumerate().flat_map(|(row, (_, owners, _))| (0..owners.len()).map(move |place| (row, place)));
    let script = all
        .map(|(row, place)| format!("UPDATE sessions SET started_at = {} WHERE id = '{row}-{place}';\n", 10 + place));
    db.behind_its_back(&script.collect::<String>());
    for (row, (user, owners, expected)) in asked_for.iter().enumerate() {
        let user_id = user.map(str::to_owned);
        let found = find(&db, SessionOrigin { user_id, ..SessionOrigin::new("telegram", format!("c{row}")) });
        assert_eq!(found, expected.map(|place| format!("{row}-{place}")), "{user:?} among {owners:?}");
    }
}

fn recover(db: &SessionDb, peer: &GatewayPeer) -> Option<String> {
    db.find_latest_gateway_session_for_peer(peer).expect("finds").map(|session| session.id().to_owned())
}

fn say_something(db: &SessionDb, ids: &[&str]) {
    for id in ids {
        db.append_message(*id, NewMessage::new("user", "x")).expect("appends");
    }
}

fn a_peer_recovers_its_newest_session_that_nobody_meant_to_end(mut db: World) {
    let all = ["live", "closed", "orphaned", "reset", "empty", "counted", "undone"];
    for id in all {
        db.create_session(NewSession::new(id, "telegram").session_key("k")).expect("creates");
    }
    say_something(&db, &["live", "closed", "orphaned", "reset", "undone"]);
    db.behind_its_back(
        "UPDATE sessions SET started_at = 10 WHERE id = 'live'; \
         UPDATE sessions SET started_at = 20, ended_at = 21, end_reason = 'agent_close' WHERE id = 'closed'; \
         UPDATE sessions SET started_at = 30, ended_at = 31, end_reason = 'ws_orphan_reap' WHERE id = 'orphaned'; \
         UPDATE sessions SET started_at = 40, message_count = 3 WHERE id = 'counted'; \
         UPDATE sessions SET started_at = 50, message_count = 0 WHERE id = 'undone'; \
         UPDATE messages SET active = 0 WHERE session_id = 'undone'; \
         UPDATE sessions SET started_at = 60, ended_at = 61, end_reason = 'session_reset' WHERE id = 'reset'; \
         UPDATE sessions SET started_at = 70 WHERE id = 'empty';",
    );
    let peer = GatewayPeer::new("telegram", "k");
    for expected in ["undone", "counted", "orphaned", "closed", "live"] {
        assert_eq!(recover(&db, &peer).as_deref(), Some(expected), "what was ended on purpose hides nothing older");
        db.end_session(expected, "done").expect("ends");
        db.behind_its_back(&format!("UPDATE sessions SET end_reason = 'done' WHERE id = '{expected}'"));
    }
    assert_eq!(recover(&db, &peer), None);
}

fn a_peer_is_found_by_its_key_and_source_and_not_reopened(db: World) {
    db.create_session(NewSession::new("s", "telegram").session_key("k")).expect("creates");
    say_something(&db, &["s"]);
    db.end_session("s", "agent_close").expect("ends");
    let peer = |source: &str, key: &str| GatewayPeer::new(source, key);
    let found = db.find_latest_gateway_session_for_peer(&peer("telegram", "k")).expect("finds").expect("is there");
    assert_eq!(found, get(&db, "s"), "a row as it is stored, and nothing besides");
    assert_eq!(recover(&db, &peer("Telegram", "k")), None);
    assert_eq!(recover(&db, &peer("telegram", "K")), None);
    assert_eq!(recover(&db, &peer("telegram", "")), None);
    assert_eq!(recover(&db, &GatewayPeer::new("telegram", Value::Null)), None);
    assert!(get(&db, "s").ended_at().is_some());
}

fn a_peer_whose_key_is_unknown_is_found_by_the_whole_peer(mut db: World) {
    make(
        &mut db,
        &[
            made("older", 10, "user_id = 'u', session_key = 'another'"),
            made("without key", 20, "user_id = 'u', session_key = NULL, thread_id = ''"),
            made("empty", 30, "user_id = 'u'"),
            made("thread", 40, "user_id = 'u', thread_id = '7'"),
            made("of a group", 50, "chat_type = 'group'"),
            made("elsewhere", 60, "user_id = 'u', source = 'Telegram'"),
        ],
    );
    say_something(&db, &["older", "without key", "thread", "of a group", "elsewhere"]);
    let peer = |key: &str| GatewayPeer::new("telegram", key).user_id("u").chat_id("c").chat_type("dm");
    assert_eq!(recover(&db, &peer("new")).as_deref(), Some("without key"));
    assert_eq!(recover(&db, &peer("new").thread_id("")).as_deref(), Some("without key"));
    assert_eq!(recover(&db, &peer("new").thread_id("7")).as_deref(), Some("thread"));
    assert_eq!(recover(&db, &peer("another")).as_deref(), Some("older"), "the key goes first");
    assert_eq!(recover(&db, &peer("new").user_id("v")), None);
    let group = GatewayPeer::new("telegram", "new").chat_id("c").chat_type("group");
    assert_eq!(recover(&db, &group).as_deref(), Some("of a group"));
    assert_eq!(
        recover(&db, &group.clone().user_id("")).as_deref(),
        Some("of a group"),
        "NULL and the empty text are one"
    );
    assert_eq!(recover(&db, &GatewayPeer::new("telegram", "new").user_id("u").chat_id("c")), None, "no type of chat");
    assert_eq!(recover(&db, &GatewayPeer::new("telegram", "new").user_id("u").chat_type("dm")), None, "no chat");
}

fn the_indexes_that_lookups_of_gateways_rely_on_are_there(db: World) {
    let engine_names = if db.path().starts_with("postgresql:") || db.path().starts_with("postgres:") {
        "SELECT COUNT(*) FROM pg_indexes WHERE schemaname = current_schema() AND indexname IN "
    } else {
        "SELECT COUNT(*) FROM sqlite_master WHERE type = 'index' AND name IN "
    };
    let names = "('idx_sessions_session_key', 'idx_sessions_gateway_peer', 'idx_sessions_handoff_state', \
                  'idx_messages_platform_msg_id', 'idx_async_delegations_delivery')";
    assert_eq!(db.seen_from_outside(&format!("{engine_names}{names}")), "5");
}

fn a_handle_that_only_reads_finds_and_lists_and_refuses_to_write(db: World) {
    db.create_session(NewSession::new("s", "telegram").session_key("k").chat_id("c")).expect("creates");
    db.save_gateway_routing_entry("k", "x", "").expect("saves");
    let looking = db.looking();
    assert_eq!(list(&looking, None, true), ["s"]);
    assert_eq!(find(&looking, SessionOrigin::new("telegram", "c")).as_deref(), Some("s"));
    assert_eq!(entries(&looking, ""), pairs(&[("k", "x")]));
    for refused in [
        looking.save_gateway_routing_entry("k", "y", ""),
        looking.replace_gateway_routing_entries([("k", "y")], ""),
        looking.delete_gateway_routing_entries(["k"], ""),
        looking.record_gateway_session_peer("s", GatewayPeer::new("telegram", "k")),
    ] {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
}

on_each_engine! {
    recording_a_peer_overwrites_what_tells_peers_apart_and_keeps_what_is_shown
    recording_a_peer_needs_a_session_a_key_and_a_source
    a_routing_entry_is_inserted_or_overwritten_and_never_read
    replacing_a_scope_leaves_others_alone_and_gives_one_time
    replacing_changes_nothing_if_one_pair_fails
    replacing_is_atomic_for_readers_and_other_writers
    deleting_routing_entries_passes_over_unknown_keys
    the_newest_of_a_key_is_chosen_before_anything_is_left_out
    a_listing_goes_by_the_newest_message_of_any_state
    an_origin_finds_live_gateway_sessions_of_its_chat
    an_origin_is_resolved_only_where_it_is_clear_whose_session_it_is
    a_peer_recovers_its_newest_session_that_nobody_meant_to_end
    a_peer_is_found_by_its_key_and_source_and_not_reopened
    a_peer_whose_key_is_unknown_is_found_by_the_whole_peer
    the_indexes_that_lookups_of_gateways_rely_on_are_there
    a_handle_that_only_reads_finds_and_lists_and_refuses_to_write
}
