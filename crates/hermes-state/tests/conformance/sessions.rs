//! The life of a session: creation, inheritance, end, titles, listing.

use hermes_state::{Error, NewMessage, NewSession, Session, SessionDb, SessionQuery, Value};

use crate::world::{World, on_each_engine};

fn create(db: &SessionDb, id: &str) {
    db.create_session(NewSession::new(id, "cli")).expect("creates");
}

fn get(db: &SessionDb, id: &str) -> Session {
    db.session(id).expect("reads").expect("is there")
}

fn ids(sessions: &[Session]) -> Vec<&str> {
    sessions.iter().map(Session::id).collect()
}

fn list(db: &SessionDb, query: SessionQuery) -> Vec<String> {
    ids(&db.list_sessions(&query).expect("lists")).into_iter().map(str::to_owned).collect()
}

fn a_session_has_all_columns_in_their_order_and_defaults(db: World) {
    create(&db, "s");
    let session = get(&db, "s");
    let columns = session.record().columns();
    assert_eq!((columns.len(), &*columns[0], &*columns[45]), (46, "id", "archived"));
    for (column, value) in [
        ("message_count", Value::Integer(0)),
        ("expiry_finalized", Value::Integer(0)),
        ("archived", Value::Integer(0)),
        ("title", Value::Null),
        ("ended_at", Value::Null),
        ("model_config", Value::Null),
    ] {
        assert_eq!(session.record().get(column), Some(&value), "{column}");
    }
    assert!(session.started_at() > 1.7e9);
}

fn creating_again_fills_what_is_open_and_overwrites_nothing(db: World) {
    db.create_session(NewSession::new("s", "cli").model("first").cwd("")).expect("creates");
    let started = get(&db, "s").started_at();
    db.end_session("s", "done").expect("ends");
    db.ensure_session(NewSession::new("s", "other").model("second").cwd("/x").chat_id("c").user_id("u"))
        .expect("fills");
    let session = get(&db, "s");
    assert_eq!((session.source(), session.model(), session.started_at()), ("cli", Some("first"), started));
    assert_eq!(session.record().text("cwd"), Some(""), "an empty text is a value");
    assert_eq!(session.record().text("chat_id"), Some("c"));
    assert_eq!(session.record().get("user_id"), Some(&Value::Null), "the user is never filled in");
    assert_eq!(session.end_reason(), Some("done"), "and it stays ended");
}

fn an_id_must_say_something_and_a_parent_must_exist(db: World) {
    assert!(matches!(db.create_session(NewSession::new("", "cli")), Err(Error::Invalid(_))));
    assert!(matches!(db.create_session(NewSession::new(None::<&str>, "cli")), Err(Error::Invalid(_))));
    let orphan = NewSession::new("s", "cli").parent_session_id("nobody");
    assert!(matches!(db.create_session(orphan), Err(Error::Constraint { .. })));
    assert!(matches!(db.create_session(NewSession::new("s", None::<&str>)), Err(Error::Constraint { .. })));
    assert_eq!(db.session("s").expect("reads"), None);
}

fn a_child_inherits_the_folder_and_only_a_continuation_inherits_the_routing(db: World) {
    let parent =
        NewSession::new("p", "telegram").cwd("/work").git_repo_root("/work").chat_id("c").user_id("u").session_key("k");
    db.create_session(parent).expect("creates");
    db.create_session(NewSession::new("agent", "cli").parent_session_id("p")).expect("creates");
    db.end_session("p", "compression").expect("ends");
    db.create_session(NewSession::new("next", "telegram").parent_session_id("p")).expect("creates");
    db.create_session(NewSession::new("elsewhere", "cli").parent_session_id("p").cwd("/tmp")).expect("creates");
    let text = |id: &str, column: &str| get(&db, id).record().text(column).map(str::to_owned);
    assert_eq!((text("agent", "cwd"), text("agent", "chat_id")), (Some("/work".into()), None));
    for (column, value) in
        [("cwd", "/work"), ("git_repo_root", "/work"), ("chat_id", "c"), ("user_id", "u"), ("session_key", "k")]
    {
        assert_eq!(text("next", column).as_deref(), Some(value), "{column}");
    }
    assert_eq!(text("elsewhere", "git_repo_root"), None, "a repository belongs to its folder");
}

fn the_first_end_wins_and_reopening_undoes_it(db: World) {
    create(&db, "s");
    db.end_session("s", "first").expect("ends");
    let ended = get(&db, "s").ended_at();
    db.end_session("s", "second").expect("does nothing");
    assert_eq!((get(&db, "s").end_reason(), get(&db, "s").ended_at()), (Some("first"), ended));
    db.reopen_session("s").expect("reopens");
    assert_eq!((get(&db, "s").end_reason(), get(&db, "s").ended_at()), (None, None));
    db.end_session("s", None::<&str>).expect("ends");
    assert!(get(&db, "s").ended_at().is_some() && get(&db, "s").end_reason().is_none());
    db.end_session("nobody", "x").expect("an unknown id is no error");
    db.reopen_session("nobody").expect("an unknown id is no error");
}

fn titles_are_cleaned_unique_and_taken_over_along_a_compressed_conversation(db: World) {
    for id in ["a", "b"] {
        create(&db, id);
    }
    assert!(db.set_session_title("a", Some("  Harbour\u{200b}  plan ")).expect("sets"));
    assert_eq!(db.session_title("a").expect("reads").as_deref(), Some("Harbour plan"));
    let error = db.set_session_title("b", Some("Harbour plan")).expect_err("is taken");
    assert!(matches!(&error, Error::TitleInUse { holder, archived: false, .. } if holder == "a"), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("already in use") && text.contains("Harbour plan") && text.contains("cli"), "{text}");
    assert!(db.set_session_title("a", Some("Harbour plan")).expect("its own title again"));
    assert!(db.set_session_title("b", Some("harbour plan")).expect("case differs"));

    db.end_session("a", "compression").expect("ends");
    db.create_session(NewSession::new("a2", "cli").parent_session_id("a")).expect("creates");
    assert!(db.set_session_title("a2", Some("Harbour plan")).expect("moves"));
    assert_eq!(db.session_title("a").expect("reads"), None);
    assert!(matches!(db.set_session_title("a", Some("Harbour plan")), Err(Error::TitleInUse { .. })), "only upwards");

    assert!(db.set_session_title("b", Some(" ")).expect("clears"));
    assert_eq!(db.session_title("b").expect("reads"), None);
    assert!(!db.set_session_title("nobody", Some("free")).expect("is unknown"));
    assert!(matches!(
        db.set_session_title("nobody", Some(&"x".repeat(101))),
        Err(Error::TitleTooLong { length: 101, .. })
    ));
}

fn a_delegate_cannot_take_its_parents_title(db: World) {
    create(&db, "p");
    db.set_session_title("p", Some("Mine")).expect("sets");
    db.end_session("p", "compression").expect("ends");
    let agent = NewSession::new("agent", "cli").parent_session_id("p").model_config(r#"{"_delegate_from": "p"}"#);
    db.create_session(agent).expect("creates");
    assert!(matches!(db.set_session_title("agent", Some("Mine")), Err(Error::TitleInUse { .. })));
    assert_eq!(db.session_title("p").expect("reads").as_deref(), Some("Mine"));
}

fn a_listing_has_roots_and_branches_newest_first_and_leaves_out_sub_agents(db: World) {
    create(&db, "root");
    db.create_session(NewSession::new("agent", "cli").parent_session_id("root")).expect("creates");
    let branch =
        NewSession::new("branch", "cli").parent_session_id("root").model_config(r#"{"_branched_from": "root"}"#);
    db.create_session(branch).expect("creates");
    let delegate = NewSession::new("delegate", "cli").model_config(r#"{"_delegate_from": "__orphaned__"}"#);
    db.create_session(delegate).expect("creates");
    db.create_session(NewSession::new("odd", "cli").model_config("no json")).expect("creates");
    db.create_session(NewSession::new("null", "cli").model_config(r#"{"_delegate_from": null}"#)).expect("creates");
    assert_eq!(list(&db, SessionQuery::default()), ["null", "odd", "branch", "root"]);
    let all = SessionQuery { include_children: true, ..SessionQuery::default() };
    assert_eq!(list(&db, all.clone()).len(), 6);
    assert_eq!(db.session_count(&SessionQuery::default()).expect("counts"), 4);
    assert_eq!(db.session_count(&all).expect("counts"), 6);
    let page = |limit, offset| list(&db, SessionQuery { limit, offset, ..SessionQuery::default() });
    assert_eq!(page(2, 1), ["odd", "branch"]);
    assert_eq!((page(0, 0).len(), page(-1, -5).len()), (0, 4));
}

fn filters_of_a_listing_judge_the_row_itself(db: World) {
    db.create_session(NewSession::new("a", "cli").cwd("/home/ada/proj")).expect("creates");
    db.create_session(NewSession::new("b", "telegram").cwd("/home/ada/proj/sub")).expect("creates");
    db.create_session(NewSession::new("c", "cron").cwd("/home/ada/proj_x")).expect("creates");
    db.create_session(NewSession::new("d", "cli").cwd("C:\\work\\x")).expect("creates");
    db.append_message("b", NewMessage::new("user", "one")).expect("appends");
    let with = |change: fn(&mut SessionQuery)| {
        let mut query = SessionQuery::default();
        change(&mut query);
        let found = list(&db, query.clone());
        assert_eq!(i64::try_from(found.len()).expect("few"), db.session_count(&query).expect("counts"), "{query:?}");
        found
    };
    assert_eq!(with(|q| q.source = Some("cli".into())), ["d", "a"]);
    assert_eq!(with(|q| q.source = Some(String::new())).len(), 4, "an empty source is no filter");
    assert_eq!(with(|q| q.exclude_sources = vec!["cli".into(), "cron".into()]), ["b"]);
    assert_eq!(with(|q| q.exclude_sources = vec!["cli".into(), Value::Null]).len(), 0);
    assert_eq!(with(|q| q.cwd_prefix = Some("/home/ada/proj/".into())), ["b", "a"]);
    assert_eq!(with(|q| q.cwd_prefix = Some("/home/ada/pro_".into())).len(), 0, "no wildcard");
    assert_eq!(with(|q| q.cwd_prefix = Some("/".into())), ["c", "b", "a"], "all absolute paths");
    assert_eq!(with(|q| q.cwd_prefix = Some("C:\\work".into())), ["d"]);
    assert_eq!(with(|q| q.min_message_count = 1), ["b"]);
    assert_eq!(with(|q| q.archived_only = true).len(), 0);
}

fn a_preview_is_the_beginning_of_the_first_user_message_in_one_line(db: World) {
    let preview = |id: &str, text: &str| {
        create(&db, id);
        db.append_message(id, NewMessage::new("assistant", "before")).expect("appends");
        db.append_message(id, NewMessage::new("user", text)).expect("appends");
        db.append_message(id, NewMessage::new("user", "later")).expect("appends");
        let query = SessionQuery { limit: 1, ..SessionQuery::default() };
        db.list_sessions(&query).expect("lists")[0].preview().map(str::to_owned)
    };
    let long = "x".repeat(70);
    for (id, text, expected) in [
        ("a", "line one\nline two\r\n", "line one line two".to_owned()),
        ("b", "ends\0here", "ends".to_owned()),
        ("c", &long, format!("{}...", "x".repeat(60))),
        ("d", &"y".repeat(60), "y".repeat(60)),
        ("e", "", String::new()),
        ("f", "  \u{1c} in the middle ", "in the middle".to_owned()),
    ] {
        assert_eq!(preview(id, text), Some(expected), "{text:?}");
    }
    create(&db, "none");
    let session = &db.list_sessions(&SessionQuery { limit: 1, ..SessionQuery::default() }).expect("lists")[0];
    assert_eq!((session.preview(), session.last_active()), (Some(""), Some(session.started_at())));
}

fn a_compressed_conversation_is_listed_as_it_stands_now(db: World) {
    db.create_session(NewSession::new("c1", "cli").system_prompt("first")).expect("creates");
    db.end_session("c1", "compression").expect("ends");
    db.create_session(NewSession::new("c2", "cli").parent_session_id("c1").system_prompt("second")).expect("creates");
    db.create_session(NewSession::new("tool", "tool").parent_session_id("c1")).expect("creates");
    db.set_session_title("c2", Some("Now")).expect("sets");
    db.append_message("c2", NewMessage::new("user", "go on")).expect("appends");
    create(&db, "newer");
    let rows = db.list_sessions(&SessionQuery::default()).expect("lists");
    assert_eq!(ids(&rows), ["newer", "c2"]);
    let row = &rows[1];
    assert_eq!(row.record().text("_lineage_root_id"), Some("c1"));
    assert_eq!(
        (row.title(), row.preview(), row.message_count(), row.end_reason()),
        (Some("Now"), Some("go on"), 1, None)
    );
    assert_eq!(row.record().text("system_prompt"), Some("second"));
    assert_eq!(row.parent_session_id(), None, "what the root keeps");
    let raw = SessionQuery { project_compression_tips: false, ..SessionQuery::default() };
    assert_eq!(list(&db, raw), ["newer", "c1"]);
    let compact = SessionQuery { compact_rows: true, ..SessionQuery::default() };
    assert_eq!(db.list_sessions(&compact).expect("lists")[1].record().get("system_prompt"), None);
}

fn by_activity_an_old_conversation_with_a_fresh_continuation_comes_first(db: World) {
    create(&db, "old");
    db.end_session("old", "compression").expect("ends");
    db.create_session(NewSession::new("cont", "cli").parent_session_id("old")).expect("creates");
    create(&db, "new");
    db.append_message("cont", NewMessage::new("user", "now")).expect("appends");
    let by_activity = SessionQuery { order_by_last_active: true, ..SessionQuery::default() };
    assert_eq!(list(&db, by_activity.clone()), ["cont", "new"]);
    assert_eq!(list(&db, SessionQuery { limit: 1, ..by_activity.clone() }), ["cont"]);
    assert_eq!(list(&db, SessionQuery { id_query: Some(" OLD ".into()), ..by_activity.clone() }), ["cont"]);
    assert_eq!(list(&db, SessionQuery { search_query: Some("ne".into()), ..by_activity.clone() }), ["new"]);
    db.set_session_title("new", Some("My-App v1.2")).expect("sets");
    assert_eq!(list(&db, SessionQuery { search_query: Some("myapp v12".into()), ..by_activity }), ["new"]);
}

on_each_engine! {
    a_session_has_all_columns_in_their_order_and_defaults
    creating_again_fills_what_is_open_and_overwrites_nothing
    an_id_must_say_something_and_a_parent_must_exist
    a_child_inherits_the_folder_and_only_a_continuation_inherits_the_routing
    the_first_end_wins_and_reopening_undoes_it
    titles_are_cleaned_unique_and_taken_over_along_a_compressed_conversation
    a_delegate_cannot_take_its_parents_title
    a_listing_has_roots_and_branches_newest_first_and_leaves_out_sub_agents
    filters_of_a_listing_judge_the_row_itself
    a_preview_is_the_beginning_of_the_first_user_message_in_one_line
    a_compressed_conversation_is_listed_as_it_stands_now
    by_activity_an_old_conversation_with_a_fresh_continuation_comes_first
}
