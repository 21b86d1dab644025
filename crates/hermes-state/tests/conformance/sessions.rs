//! The life of a session: creation, inheritance, end, archive, listing.

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
    assert_eq!((columns.len(), &*columns[0]), (46, "id"));
    assert!(db.is_older() || &*columns[45] == "archived");
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

fn a_child_inherits_from_the_parent_that_is_noted_and_only_what_it_lacks(mut db: World) {
    let parent = |id: &str| NewSession::new(id, "telegram").cwd(format!("/{id}")).chat_id(format!("chat of {id}"));
    db.create_session(parent("p").git_repo_root("/p")).expect("creates");
    db.create_session(parent("q")).expect("creates");
    db.behind_its_back(
        "UPDATE sessions SET end_reason = 'compression', git_branch = 'main', display_name = 'Ada', origin_json = '{}'",
    );
    let text = |id: &str, column: &str| get(&db, id).record().text(column).map(str::to_owned);
    db.create_session(NewSession::new("s", "cli").thread_id("own").chat_id("")).expect("creates");
    db.create_session(NewSession::new("s", "cli").parent_session_id("p").user_id("late")).expect("fills");
    for (column, value) in [
        ("parent_session_id", Some("p")),
        ("cwd", Some("/p")),
        ("git_repo_root", Some("/p")),
        ("git_branch", Some("main")),
        ("display_name", Some("Ada")),
        ("origin_json", Some("{}")),
        ("thread_id", Some("own")),
        ("chat_id", Some("")),
        ("user_id", None),
    ] {
        assert_eq!(text("s", column).as_deref(), value, "{column}: the parent's end need have no time");
    }
    db.create_session(NewSession::new("t", "cli").parent_session_id("q").cwd("/q")).expect("creates");
    assert_eq!(text("t", "git_branch").as_deref(), Some("main"), "it works in the same folder");
    db.update_session_cwd("p", "/moved", "", "").expect("notes");
    db.create_session(NewSession::new("t", "cli").parent_session_id("p")).expect("keeps");
    assert_eq!((text("t", "parent_session_id").as_deref(), text("t", "git_repo_root")), (Some("q"), None));
    assert_eq!(text("s", "cwd").as_deref(), Some("/p"), "what changes later is not handed on");
    db.create_session(NewSession::new("t", "cli").parent_session_id("nobody")).expect("it has a parent");
    let orphan = db.create_session(NewSession::new("p", "cli").parent_session_id("nobody"));
    assert!(matches!(orphan, Err(Error::Constraint { .. })));
    let nameless = db.create_session(NewSession::new("u", "cli").parent_session_id(""));
    assert!(matches!(nameless, Err(Error::Constraint { .. })), "an empty text names a parent, which is not there");
    db.create_session(NewSession::new("self", "cli").parent_session_id("self")).expect("may be its own parent");
    let agent = NewSession::new("agent", "cli").parent_session_id("p").model_config(r#"{"_delegate_from": "p"}"#);
    db.create_session(agent).expect("creates");
    assert_eq!((text("agent", "cwd").as_deref(), text("agent", "chat_id")), (Some("/moved"), None));
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

fn only_a_live_session_or_an_accidental_end_becomes_a_reset(db: World) {
    for (id, end, promoted) in [
        ("live", None, true),
        ("closed", Some("agent_close"), true),
        ("reaped", Some("ws_orphan_reap"), true),
        ("done", Some("cli_close"), false),
        ("alike", Some("agent_close "), false),
    ] {
        create(&db, id);
        if let Some(reason) = end {
            db.end_session(id, reason).expect("ends");
        }
        let before = get(&db, id).ended_at();
        assert_eq!(db.promote_to_session_reset(id, "session_reset").expect("decides"), promoted, "{id}");
        let after = get(&db, id);
        if promoted {
            assert_eq!(after.end_reason(), Some("session_reset"), "{id}");
            assert!(after.ended_at() > before, "{id}: the end is now");
        } else {
            assert_eq!((after.end_reason(), after.ended_at()), (end, before), "{id}");
        }
    }
    create(&db, "unexplained");
    db.end_session("unexplained", None::<&str>).expect("ends");
    for id in ["unexplained", "live", "nobody"] {
        assert!(!db.promote_to_session_reset(id, "again").expect("decides"), "{id}");
    }
    assert_eq!(get(&db, "unexplained").end_reason(), None);
    assert_eq!(get(&db, "live").end_reason(), Some("session_reset"));
    assert!(matches!(db.looking().promote_to_session_reset("live", "x"), Err(Error::ReadOnly { .. })));
}

fn of_competing_ends_and_resets_one_happens(db: World) {
    create(&db, "s");
    create(&db, "t");
    let reasons: Vec<String> = (0..8).map(|number| format!("reason {number}")).collect();
    let resets = std::thread::scope(|scope| {
        let threads: Vec<_> = reasons
            .iter()
            .map(|reason| {
                let own = db.another();
                scope.spawn(move || {
                    own.end_session("s", reason).expect("ends");
                    let seen = get(&own, "s");
                    let reset = own.promote_to_session_reset("t", reason).expect("decides");
                    (seen.end_reason().map(str::to_owned), seen.ended_at(), reset)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("ends")).collect::<Vec<_>>()
    });
    let winner = get(&db, "s");
    assert!(reasons.iter().any(|reason| Some(reason.as_str()) == winner.end_reason()));
    for (reason, ended, _) in &resets {
        assert_eq!((reason.as_deref(), *ended), (winner.end_reason(), winner.ended_at()), "all see the same end");
    }
    assert_eq!(resets.iter().filter(|(_, _, reset)| *reset).count(), 1);
}

fn the_flag_of_expiry_is_set_and_taken_back(db: World) {
    create(&db, "s");
    let flag = || get(&db, "s").record().integer("expiry_finalized");
    db.set_expiry_finalized("s", true).expect("sets");
    assert_eq!(flag(), Some(1));
    db.set_expiry_finalized("s", false).expect("sets");
    assert_eq!(flag(), Some(0));
    db.set_expiry_finalized("nobody", true).expect("an unknown id is no error");
}

fn a_folder_is_noted_as_it_is_and_an_empty_probe_erases_nothing(db: World) {
    create(&db, "s");
    let place = || {
        let row = get(&db, "s");
        let text = |column| row.record().text(column).map(str::to_owned);
        (text("cwd"), text("git_branch"), text("git_repo_root"))
    };
    let is =
        |cwd: &str, branch: &str, root: &str| (Some(cwd.to_owned()), Some(branch.to_owned()), Some(root.to_owned()));
    db.update_session_cwd("s", " /x ", " main\u{1c}", "\u{3000}/x\n").expect("notes");
    assert_eq!(place(), is(" /x ", "main", "/x"));
    db.end_session("s", "done").expect("ends");
    db.update_session_cwd("s", "/y", "", " \t").expect("notes");
    assert_eq!(place(), is("/y", "main", "/x"));
    db.update_session_cwd("s", "/z", None::<&str>, "/z").expect("notes");
    assert_eq!(place(), is("/z", "main", "/z"));
    for nowhere in [Value::Null, "".into()] {
        db.update_session_cwd("s", nowhere, "other", "/other").expect("does nothing");
    }
    db.update_session_cwd("", "/other", "other", "/other").expect("does nothing");
    db.update_session_cwd("nobody", "/other", "other", "/other").expect("does nothing");
    assert_eq!(place(), is("/z", "main", "/z"));
    assert_eq!(get(&db, "s").end_reason(), Some("done"));
    db.looking().update_session_cwd("s", "", "", "").expect("is no write at all");
}

fn repositories_are_noted_by_folder_where_none_is(db: World) {
    for (id, cwd) in [("a", "/one"), ("b", "/one"), ("c", "/two"), ("d", "/One"), ("e", "/one/x"), ("f", "/one")] {
        db.create_session(NewSession::new(id, "cli").cwd(cwd)).expect("creates");
    }
    db.create_session(NewSession::new("child", "cli").cwd("/one").parent_session_id("a")).expect("creates");
    db.update_session_cwd("f", "/one", "", "/kept").expect("notes");
    db.create_session(NewSession::new("empty", "cli").cwd("/one").git_repo_root("")).expect("creates");
    db.end_session("b", "done").expect("ends");
    let many = (0..12_000).map(|number| (format!("/many/{number}"), "/many".to_owned()));
    let pairs = [("/one", " /root "), ("/two", "/two"), ("", "/x"), ("/One", "")];
    db.backfill_repo_roots(many.chain(pairs.map(|(cwd, root)| (cwd.to_owned(), root.to_owned())))).expect("fills");
    let root = |id: &str| get(&db, id).record().text("git_repo_root").map(str::to_owned);
    for id in ["a", "b", "child", "empty"] {
        assert_eq!(root(id).as_deref(), Some(" /root "), "{id}");
    }
    assert_eq!((root("c").as_deref(), root("f").as_deref()), (Some("/two"), Some("/kept")));
    assert_eq!((root("d"), root("e")), (None, None));
    db.looking().backfill_repo_roots([("", "/x"), ("/one", "")]).expect("is no write at all");
}

fn configuration_prompt_and_model_are_replaced(db: World) {
    db.create_session(NewSession::new("s", "cli").model("one").model_config(r#"{"_delegate_from": "x"}"#))
        .expect("creates");
    let text = |column: &str| get(&db, "s").record().text(column).map(str::to_owned);
    db.update_session_meta("s", "not even JSON", None::<&str>).expect("replaces");
    assert_eq!((text("model_config").as_deref(), text("model").as_deref()), (Some("not even JSON"), Some("one")));
    db.update_session_meta("s", None::<&str>, "").expect("replaces");
    assert_eq!((text("model_config"), text("model").as_deref()), (None, Some("")));
    assert_eq!(list(&db, SessionQuery::default()), ["s"], "its mark is gone");
    db.update_system_prompt("s", "long").expect("replaces");
    db.update_session_model("s", "two").expect("replaces");
    assert_eq!((text("system_prompt").as_deref(), text("model").as_deref()), (Some("long"), Some("two")));
    db.update_session_model("s", None::<&str>).expect("replaces");
    assert_eq!((text("system_prompt").as_deref(), text("model")), (Some("long"), None));
    db.update_system_prompt("s", None::<&str>).expect("replaces");
    assert_eq!(text("system_prompt"), None);
    db.update_session_meta("nobody", "x", "x").expect("an unknown id is no error");
    db.update_system_prompt("nobody", "x").expect("an unknown id is no error");
    db.update_session_model("nobody", "x").expect("an unknown id is no error");
}

fn numbers_become_texts_wherever_a_text_belongs(db: World) {
    db.create_session(NewSession::new(7, "cli").model(2.5).cwd(-1)).expect("creates");
    let row = get(&db, "7");
    assert_eq!((row.id(), row.model(), row.record().text("cwd")), ("7", Some("2.5"), Some("-1")));
    db.update_session_model(7, 3).expect("replaces");
    db.update_session_cwd(7, 8, 9, 1.0).expect("notes");
    db.end_session(7, 5).expect("ends");
    let row = get(&db, "7");
    assert_eq!((row.model(), row.end_reason(), row.record().text("cwd")), (Some("3"), Some("5"), Some("8")));
    assert_eq!((row.record().text("git_branch"), row.record().text("git_repo_root")), (Some("9"), Some("1.0")));
    assert!(db.set_session_archived(7, true).expect("archives"));
    assert!(db.set_session_title(7, Some("Seven")).expect("sets"));
    db.update_session_cwd("7", "8", "", "").expect("notes");
    db.create_session(NewSession::new("x", "cli").cwd("8")).expect("creates");
    db.backfill_repo_roots([(8, 10)]).expect("fills");
    assert_eq!(get(&db, "x").record().text("git_repo_root"), Some("10"));
    db.create_session(NewSession::new(0, "cli")).expect("zero is an id like any other");
    assert_eq!(get(&db, "0").id(), "0");
}

/// Chains `ids` by their parents; each but the last ended by compression.
fn chain(db: &SessionDb, ids: &[&str]) {
    create(db, ids[0]);
    for pair in ids.windows(2) {
        db.end_session(pair[0], "compression").expect("ends");
        db.create_session(NewSession::new(pair[1], "cli").parent_session_id(pair[0])).expect("creates");
    }
}

fn a_conversation_is_archived_as_a_whole(db: World) {
    chain(&db, &["c1", "c2", "c3", "c4"]);
    for (id, parent, config) in [
        ("branch", "c2", Some(r#"{"_branched_from": "c2"}"#)),
        ("delegate", "c2", Some(r#"{"_delegate_from": "c2"}"#)),
        ("sibling", "c2", None),
        ("below", "c4", None),
        ("agent", "c3", Some(r#"{"_delegate_from": null}"#)),
    ] {
        db.create_session(NewSession::new(id, "cli").parent_session_id(parent).model_config(config)).expect("creates");
    }
    db.create_session(NewSession::new("tool", "tool").parent_session_id("c3")).expect("creates");
    let archived = || {
        let query = SessionQuery { include_children: true, archived_only: true, limit: -1, ..SessionQuery::default() };
        let mut found = list(&db, query);
        found.sort();
        found
    };
    let everything = ["agent", "c1", "c2", "c3", "c4", "sibling", "tool"];
    assert!(db.set_session_archived("c1", true).expect("archives"));
    assert_eq!(
        archived(),
        everything,
        "what is marked is a conversation of its own; c4 is live, so what is below stays"
    );
    assert!(db.set_session_archived("c1", false).expect("takes out"));
    assert!(archived().is_empty());
    assert!(db.set_session_archived("c3", true).expect("archives"));
    assert_eq!(archived(), ["agent", "c1", "c2", "c3", "c4", "tool"], "other ways down from ancestors are not taken");
    assert!(db.set_session_archived("c4", false).expect("takes out"));
    assert_eq!(archived(), ["agent", "tool"]);
    for id in ["branch", "delegate", "below"] {
        assert!(db.set_session_archived(id, true).expect("archives"));
    }
    assert_eq!(archived(), ["agent", "below", "branch", "delegate", "tool"], "nor do they take their parents along");
    assert!(!db.set_session_archived("nobody", true).expect("is unknown"));
}

fn a_circle_of_parents_is_archived_once_round(mut db: World) {
    chain(&db, &["a", "b", "c"]);
    db.end_session("c", "compression").expect("ends");
    db.behind_its_back("UPDATE sessions SET parent_session_id = 'c' WHERE id = 'a'");
    assert!(db.set_session_archived("b", true).expect("archives"));
    assert_eq!(db.seen_from_outside("SELECT SUM(archived) FROM sessions"), "3");
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
    a_child_inherits_from_the_parent_that_is_noted_and_only_what_it_lacks
    the_first_end_wins_and_reopening_undoes_it
    only_a_live_session_or_an_accidental_end_becomes_a_reset
    of_competing_ends_and_resets_one_happens
    the_flag_of_expiry_is_set_and_taken_back
    a_folder_is_noted_as_it_is_and_an_empty_probe_erases_nothing
    repositories_are_noted_by_folder_where_none_is
    configuration_prompt_and_model_are_replaced
    numbers_become_texts_wherever_a_text_belongs
    a_conversation_is_archived_as_a_whole
    a_circle_of_parents_is_archived_once_round
    a_listing_has_roots_and_branches_newest_first_and_leaves_out_sub_agents
    filters_of_a_listing_judge_the_row_itself
    a_preview_is_the_beginning_of_the_first_user_message_in_one_line
    a_compressed_conversation_is_listed_as_it_stands_now
    by_activity_an_old_conversation_with_a_fresh_continuation_comes_first
}
