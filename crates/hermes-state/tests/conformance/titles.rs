//! Titles: unique, moved along a compressed conversation, numbered where nobody chose them.

use std::collections::BTreeSet;

use hermes_state::{Error, NewSession, SessionDb};

use crate::world::{World, on_each_engine};

fn create(db: &SessionDb, id: &str) {
    db.create_session(NewSession::new(id, "cli")).expect("creates");
}

fn title(db: &SessionDb, id: &str) -> Option<String> {
    db.session_title(id).expect("reads")
}

fn titled(db: &SessionDb, id: &str, title: &str) {
    create(db, id);
    assert!(db.set_session_title(id, Some(title)).expect("sets"));
}

/// Creates a session and gives it an automatic title; returns what it got.
fn automatic(db: &SessionDb, id: &str, wanted: &str) -> String {
    create(db, id);
    assert!(db.set_auto_title_if_empty(id, Some(wanted)).expect("sets"));
    title(db, id).expect("has one")
}

fn next(db: &SessionDb, base: &str) -> String {
    db.next_title_in_lineage(base).expect("reads")
}

fn resolved(db: &SessionDb, title: &str) -> Option<String> {
    db.resolve_session_by_title(title).expect("reads")
}

fn titles_that_collide_are_numbered_refused_or_moved(db: World) {
    for id in ["A", "B", "C"] {
        create(&db, id);
    }
    assert!(db.set_session_title("A", Some("Harbour plan")).expect("sets"));
    titled(&db, "Z", "100Xadone #7");
    assert!(db.set_auto_title_if_empty("B", Some("Harbour plan")).expect("sets"));
    assert_eq!(title(&db, "B").as_deref(), Some("Harbour plan #2"));
    let refused = db.set_session_title("C", Some("Harbour plan")).expect_err("is taken");
    assert_eq!(refused.to_string(), "Title 'Harbour plan' is already in use by session A (source cli, not archived)");
    db.end_session("A", "compression").expect("ends");
    db.create_session(NewSession::new("A2", "cli").parent_session_id("A")).expect("creates");
    assert!(db.set_session_title("A2", Some("Harbour plan")).expect("moves"));
    assert_eq!((title(&db, "A"), title(&db, "A2").as_deref()), (None, Some("Harbour plan")));
    assert_eq!(resolved(&db, "Harbour plan").as_deref(), Some("A2"));
    assert_eq!(next(&db, "100%_done"), "100%_done");
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

fn percent_underscore_and_backslash_stand_for_themselves(db: World) {
    titled(&db, "a", "50%_off");
    titled(&db, "b", "50%_off #4");
    titled(&db, "c", "50xyoff #9");
    titled(&db, "d", r"C:\work #2");
    titled(&db, "e", "C:Xwork #8");
    assert_eq!(next(&db, "50%_off"), "50%_off #5");
    assert_eq!(next(&db, r"C:\work"), r"C:\work #3");
    assert_eq!(automatic(&db, "f", "50%_off"), "50%_off #5");
    assert_eq!(automatic(&db, "g", r"C:\work #2"), r"C:\work #3");
    assert_eq!(resolved(&db, "50%_off").as_deref(), Some("f"));
    assert_eq!(resolved(&db, "50__off"), None);
    assert_eq!(resolved(&db, r"C:\work").as_deref(), Some("g"));
}

fn an_automatic_title_is_cut_where_its_number_would_not_fit(db: World) {
    let long = "é".repeat(100);
    titled(&db, "t1", &long);
    for number in 2..=12 {
        let found = automatic(&db, &format!("t{number}"), &long);
        let room = if number < 10 { 97 } else { 96 };
        assert_eq!(found, format!("{} #{number}", "é".repeat(room)));
    }
    let gap = format!("{} {}", "x".repeat(96), "yyy");
    titled(&db, "gap", &gap);
    assert_eq!(automatic(&db, "gap2", &gap), format!("{} #2", "x".repeat(96)), "no blank before the number's own");
    let nines = format!("b #{}", "9".repeat(97));
    titled(&db, "nines", &nines);
    assert_eq!(automatic(&db, "more", &nines), "b #2", "a number that leaves no room for the base is passed over");
    assert!(matches!(
        db.set_auto_title_if_empty("nobody", Some(&"x".repeat(101))),
        Err(Error::TitleTooLong { length: 101, max: 100 })
    ));
}

fn an_archived_holder_keeps_its_title_and_is_named(db: World) {
    titled(&db, "old", "Harbour plan");
    db.set_session_archived("old", true).expect("archives");
    create(&db, "s");
    let refused = db.set_session_title("s", Some("Harbour plan")).expect_err("is taken");
    assert!(matches!(&refused, Error::TitleInUse { holder, archived: true, .. } if holder == "old"), "{refused:?}");
    assert!(refused.to_string().ends_with("session old (source cli, archived)"), "{refused}");
    assert_eq!(title(&db, "s"), None);
    assert!(matches!(db.set_session_title("nobody", Some("Harbour plan")), Err(Error::TitleInUse { .. })));
    assert!(db.set_auto_title_if_empty("s", Some("Harbour plan")).expect("numbers"));
    assert_eq!(title(&db, "s").as_deref(), Some("Harbour plan #2"));
    assert_eq!(title(&db, "old").as_deref(), Some("Harbour plan"));
    let found = db.session_by_title("Harbour plan").expect("reads").expect("is there");
    assert_eq!((found.id(), found.record().columns().len()), ("old", 46));
}

fn an_automatic_title_fills_only_what_is_empty(mut db: World) {
    titled(&db, "a", "Mine");
    assert!(!db.set_auto_title_if_empty("a", Some("Other")).expect("keeps"));
    assert!(!db.set_auto_title_if_empty("nobody", Some("Other")).expect("is unknown"));
    create(&db, "b");
    assert!(db.set_auto_title_if_empty("b", Some(" \u{200b} ")).expect("says so"));
    assert!(db.set_auto_title_if_empty("b", None).expect("says so"));
    assert_eq!(title(&db, "b"), None);
    assert!(db.set_auto_title_if_empty("b", Some(" free\u{0} ")).expect("sets"));
    assert_eq!(title(&db, "b").as_deref(), Some("free"));
    create(&db, "c");
    db.behind_its_back("UPDATE sessions SET title = '' WHERE id = 'c'");
    assert!(!db.set_auto_title_if_empty("c", Some("Other")).expect("keeps"), "an empty text is a title");
    assert_eq!(title(&db, "c").as_deref(), Some(""));
}

fn a_title_moves_down_a_compressed_conversation_from_any_depth(db: World) {
    titled(&db, "c1", "Voyage");
    for (parent, child) in [("c1", "c2"), ("c2", "c3"), ("c3", "c4")] {
        db.end_session(parent, "compression").expect("ends");
        db.create_session(NewSession::new(child, "cli").parent_session_id(parent)).expect("creates");
    }
    assert!(db.set_auto_title_if_empty("c4", Some("Voyage")).expect("moves"));
    assert_eq!((title(&db, "c1"), title(&db, "c4").as_deref()), (None, Some("Voyage")));
    assert!(matches!(db.set_session_title("c2", Some("Voyage")), Err(Error::TitleInUse { .. })), "never upwards");
    assert!(db.set_auto_title_if_empty("c2", Some("Voyage")).expect("numbers"));
    assert_eq!(title(&db, "c2").as_deref(), Some("Voyage #2"));
    db.end_session("c4", "done").expect("ends");
    db.create_session(NewSession::new("fork", "cli").parent_session_id("c4")).expect("creates");
    assert!(matches!(db.set_session_title("fork", Some("Voyage")), Err(Error::TitleInUse { .. })), "other ends do not");
}

fn no_delegate_and_no_branch_takes_its_parents_title(db: World) {
    titled(&db, "p", "Mine");
    db.end_session("p", "compression").expect("ends");
    for (id, config) in [("agent", r#"{"_delegate_from": "p"}"#), ("branch", r#"{"_branched_from": false}"#)] {
        db.create_session(NewSession::new(id, "cli").parent_session_id("p").model_config(config)).expect("creates");
        assert!(matches!(db.set_session_title(id, Some("Mine")), Err(Error::TitleInUse { .. })), "{id}");
    }
    db.create_session(NewSession::new("under", "cli").parent_session_id("agent")).expect("creates");
    db.end_session("agent", "compression").expect("ends");
    assert!(matches!(db.set_session_title("under", Some("Mine")), Err(Error::TitleInUse { .. })), "nor through one");
    assert_eq!(title(&db, "p").as_deref(), Some("Mine"));
    assert!(db.set_auto_title_if_empty("agent", Some("Mine")).expect("numbers"));
    assert_eq!(title(&db, "agent").as_deref(), Some("Mine #2"));
}

fn a_circle_of_parents_ends_the_search_for_a_holder(mut db: World) {
    titled(&db, "other", "Taken");
    for (id, parent) in [("a", None), ("b", Some("a")), ("c", Some("b"))] {
        db.create_session(NewSession::new(id, "cli").parent_session_id(parent)).expect("creates");
        db.end_session(id, "compression").expect("ends");
    }
    db.behind_its_back("UPDATE sessions SET parent_session_id = 'c' WHERE id = 'a'");
    assert!(matches!(db.set_session_title("b", Some("Taken")), Err(Error::TitleInUse { .. })));
    assert!(db.set_session_title("c", Some("Round")).expect("sets"));
    assert!(db.set_session_title("b", Some("Round")).expect("moves: c is before b too"));
    assert_eq!(title(&db, "c"), None);
}

fn the_next_number_is_one_more_than_the_greatest(mut db: World) {
    assert_eq!(next(&db, "Free #7"), "Free", "nobody has it, so no number");
    titled(&db, "a", "Plan");
    assert_eq!(next(&db, "Plan"), "Plan #2");
    titled(&db, "b", "plan #0041");
    assert_eq!(next(&db, "Plan #3"), "Plan #42", "variants in other letters count");
    titled(&db, "c", "Plan #x");
    titled(&db, "d", "Plan # 77");
    titled(&db, "e", "Planet #99");
    assert_eq!(next(&db, "Plan"), "Plan #42", "what is no number of it does not count");
    titled(&db, "f", "Plan #٩٩");
    assert_eq!(next(&db, "Plan"), "Plan #100");
    titled(&db, "g", "Plan #2 #7");
    assert_eq!(next(&db, "Plan #2 #1"), "Plan #2 #8", "one number is dropped, not two");
    titled(&db, "h", &format!("Big #{}", "9".repeat(90)));
    assert_eq!(next(&db, "Big"), format!("Big #1{}", "0".repeat(90)));
    titled(&db, "i", "Only #x");
    assert_eq!(next(&db, "Only"), "Only #2");
    titled(&db, "j", "Null #0");
    assert_eq!(next(&db, "Null"), "Null #2");
    titled(&db, "k", "éa #5");
    assert_eq!(next(&db, "Éa"), "Éa", "case is ignored for ASCII only");
    assert_eq!(next(&db, "Plan #2\n"), "Plan #100");
    assert_eq!(next(&db, "Pl\nan #2"), "Pl\nan #2");
    db.behind_its_back("UPDATE sessions SET title = '' WHERE id = 'i'");
    assert_eq!((next(&db, ""), next(&db, " #3")), (" #2".to_owned(), " #2".to_owned()));
    let long = "y".repeat(60_000);
    assert!(matches!(db.next_title_in_lineage(&long), Err(Error::Engine { code: 1, .. })));
}

fn a_title_resolves_to_the_newest_of_its_lineage(mut db: World) {
    titled(&db, "v2", "Plan #2");
    titled(&db, "v1", "Plan");
    assert_eq!(resolved(&db, "Plan").as_deref(), Some("v1"), "an older number does not hide the title itself");
    titled(&db, "v3", "Plan #٣");
    assert_eq!(resolved(&db, "Plan").as_deref(), Some("v3"));
    db.set_session_archived("v3", true).expect("archives");
    for (id, other) in [("w1", "Plan #x"), ("w2", "plan #9"), ("w3", "Plan #"), ("w4", "Plan #4 b"), ("w5", "Plan#5")] {
        titled(&db, id, other);
    }
    assert_eq!(resolved(&db, "Plan").as_deref(), Some("v3"), "archived ones count, what only looks alike does not");
    assert_eq!(resolved(&db, "Plan #2").as_deref(), Some("v2"));
    assert_eq!(resolved(&db, "PLAN"), None);
    assert_eq!(resolved(&db, "nothing"), None);
    db.behind_its_back("UPDATE sessions SET started_at = 5 WHERE id IN ('v1', 'v2', 'v3')");
    assert_eq!(resolved(&db, "Plan").as_deref(), Some("v3"), "of those that began together the greater id");
    assert_eq!(db.session_by_title("plan").expect("reads"), None);
    assert_eq!(db.session_by_title(" Plan ").expect("reads"), None, "what is asked for is not cleaned");
    assert_eq!(db.session_by_title(None::<&str>).expect("reads"), None);
}

fn of_competing_titles_each_is_given_once(db: World) {
    let ids: Vec<String> = (1..=8).map(|number| format!("s{number}")).collect();
    for id in &ids {
        create(&db, id);
        create(&db, &format!("{id}-manual"));
    }
    let outcomes = std::thread::scope(|scope| {
        let threads: Vec<_> = ids
            .iter()
            .map(|id| {
                let own = db.another();
                scope.spawn(move || {
                    assert!(own.set_auto_title_if_empty(id, Some("Race")).expect("sets"));
                    own.set_session_title(format!("{id}-manual"), Some("Prize"))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("ends")).collect::<Vec<_>>()
    });
    let given: BTreeSet<_> = ids.iter().filter_map(|id| title(&db, id)).collect();
    let all = (2..=8).map(|number| format!("Race #{number}")).chain(["Race".to_owned()]);
    assert_eq!(given, all.collect());
    let winner = db.session_by_title("Prize").expect("reads").expect("one has it").id().to_owned();
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count(), 1);
    for outcome in outcomes {
        match outcome {
            Ok(set) => assert!(set),
            Err(error) => assert!(matches!(&error, Error::TitleInUse { holder, .. } if *holder == winner), "{error}"),
        }
    }
}

on_each_engine! {
    titles_that_collide_are_numbered_refused_or_moved
    titles_are_cleaned_unique_and_taken_over_along_a_compressed_conversation
    percent_underscore_and_backslash_stand_for_themselves
    an_automatic_title_is_cut_where_its_number_would_not_fit
    an_archived_holder_keeps_its_title_and_is_named
    an_automatic_title_fills_only_what_is_empty
    a_title_moves_down_a_compressed_conversation_from_any_depth
    no_delegate_and_no_branch_takes_its_parents_title
    a_circle_of_parents_ends_the_search_for_a_holder
    the_next_number_is_one_more_than_the_greatest
    a_title_resolves_to_the_newest_of_its_lineage
    of_competing_titles_each_is_given_once
}
