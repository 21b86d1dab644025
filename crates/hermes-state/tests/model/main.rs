//! Random operations against a reference model: after every step counters equal rows, and reads equal the model.

mod model;

use hermes_state::{
    Content, Error, MessageQuery, NewMessage, NewSession, SearchOptions, SessionDb, SessionQuery, Value,
};
use model::{Model, Row};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};

/// Few sessions, so that operations meet each other.
const SESSIONS: u8 = 5;
/// What messages speak of, each found by itself.
const WORDS: [&str; 5] = ["zebrafinch", "kingfisher", "harbour", "東京", "a/b.rs"];

/// One step. Sessions and messages are named by numbers that are taken modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    Create { session: u8, parent: Option<u8> },
    Append { session: u8, message: Draft },
    Batch { session: u8, messages: Vec<Draft> },
    Replace { session: u8, messages: Vec<Draft>, active_only: bool },
    Compact { session: u8, messages: Vec<Draft> },
    Clear { session: u8 },
    Rewind { session: u8, to: u8 },
    Restore { session: u8, since: u8 },
    End { session: u8, by_compression: bool },
    Reopen { session: u8 },
    Title { session: u8, title: Option<u8> },
    AutoTitle { session: u8, title: u8 },
    Archive { session: u8, archived: bool },
    Delete { session: u8 },
    DeleteIfEmpty { session: u8 },
    OpenAgain,
}

#[derive(Debug, Clone)]
struct Draft {
    role: &'static str,
    words: Vec<usize>,
    calls: usize,
    /// Whether the text is the part of a list.
    structured: bool,
}

impl Draft {
    fn text(&self) -> String {
        self.words.iter().map(|word| WORDS[*word]).collect::<Vec<_>>().join(" and ")
    }

    fn content(&self) -> Content {
        if self.structured {
            Content::from(serde_json::json!([{"type": "text", "text": self.text()}]))
        } else {
            Content::from(self.text())
        }
    }

    fn message(&self) -> NewMessage {
        let message = NewMessage::new(self.role, self.content());
        if self.calls == 0 {
            return message;
        }
        let calls: Vec<_> = (0..self.calls).map(|call| serde_json::json!({"id": format!("k{call}")})).collect();
        message.tool_calls(serde_json::Value::from(calls))
    }

    fn row(&self, id: i64) -> Row {
        Row {
            id,
            role: self.role,
            content: self.content(),
            // A structured text stands in the row as JSON, in which only ASCII stands for itself.
            words: self.words.iter().copied().filter(|word| !self.structured || WORDS[*word].is_ascii()).collect(),
            calls: self.calls,
            active: true,
            compacted: false,
        }
    }
}

fn draft() -> impl Strategy<Value = Draft> {
    let role = prop_oneof![3 => Just("user"), 3 => Just("assistant"), 1 => Just("tool")];
    let words = prop::collection::vec(0..WORDS.len(), 0..3);
    (role, words, 0..3usize, prop::bool::weighted(0.2)).prop_map(|(role, words, calls, structured)| Draft {
        role,
        words,
        calls,
        structured,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let session = 0..SESSIONS;
    let drafts = || prop::collection::vec(draft(), 0..4);
    prop_oneof![
        4 => (session.clone(), prop::option::of(session.clone()))
            .prop_map(|(session, parent)| Step::Create { session, parent }),
        16 => (session.clone(), draft()).prop_map(|(session, message)| Step::Append { session, message }),
        6 => (session.clone(), drafts()).prop_map(|(session, messages)| Step::Batch { session, messages }),
        2 => (session.clone(), drafts(), any::<bool>())
            .prop_map(|(session, messages, active_only)| Step::Replace { session, messages, active_only }),
        3 => (session.clone(), drafts()).prop_map(|(session, messages)| Step::Compact { session, messages }),
        1 => session.clone().prop_map(|session| Step::Clear { session }),
        4 => (session.clone(), any::<u8>()).prop_map(|(session, to)| Step::Rewind { session, to }),
        3 => (session.clone(), any::<u8>()).prop_map(|(session, since)| Step::Restore { session, since }),
        2 => (session.clone(), any::<bool>())
            .prop_map(|(session, by_compression)| Step::End { session, by_compression }),
        1 => session.clone().prop_map(|session| Step::Reopen { session }),
        3 => (session.clone(), prop::option::of(0..3u8)).prop_map(|(session, title)| Step::Title { session, title }),
        2 => (session.clone(), 0..3u8).prop_map(|(session, title)| Step::AutoTitle { session, title }),
        1 => (session.clone(), any::<bool>()).prop_map(|(session, archived)| Step::Archive { session, archived }),
        1 => session.clone().prop_map(|session| Step::Delete { session }),
        1 => session.prop_map(|session| Step::DeleteIfEmpty { session }),
        1 => Just(Step::OpenAgain),
    ]
}

fn name(session: u8) -> String {
    format!("s{session}")
}

fn messages(drafts: &[Draft]) -> Vec<NewMessage> {
    drafts.iter().map(Draft::message).collect()
}

/// The ids of the messages that were inserted last.
fn newest(db: &SessionDb, session: &str, count: usize) -> Result<Vec<i64>, TestCaseError> {
    let rows = read(db.messages(session, &MessageQuery { include_inactive: true, ..MessageQuery::default() }))?;
    Ok(rows[rows.len() - count..].iter().map(hermes_state::Message::id).collect())
}

fn read<T>(answer: hermes_state::Result<T>) -> Result<T, TestCaseError> {
    answer.map_err(|error| TestCaseError::fail(format!("a read failed: {error}")))
}

/// Takes the step in the store and in the model, which must agree on whether it can be taken.
fn take(db: &SessionDb, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    match step {
        Step::Create { session, parent } => {
            let (id, parent) = (name(*session), parent.map(name));
            let done = db.create_session(NewSession::new(id.as_str(), "cli").parent_session_id(parent.clone()));
            prop_assert_eq!(done.is_ok(), model.create(&id, parent.as_deref()), "{:?}", done);
        }
        Step::Append { session, message } => {
            let id = name(*session);
            match (db.append_message(id.as_str(), message.message()), model.sessions.get_mut(&id)) {
                (Ok(stored), Some(known)) => known.rows.push(message.row(stored.id().expect("stored"))),
                (Err(Error::Constraint { .. }), None) => {}
                (answer, _) => prop_assert!(false, "an append answered {answer:?}"),
            }
        }
        Step::Batch { session, messages: drafts } => {
            let id = name(*session);
            match (db.append_messages(id.as_str(), messages(drafts)), model.sessions.get_mut(&id)) {
                (Ok(stored), Some(known)) => {
                    let stored = stored.stored().expect("stored");
                    prop_assert_eq!(stored.len(), drafts.len());
                    known.rows.extend(drafts.iter().zip(stored).map(|(draft, stored)| draft.row(stored)));
                }
                (Ok(stored), None) => prop_assert!(drafts.is_empty() && stored.ids() == Some(&[])),
                (Err(Error::Constraint { .. }), None) => {}
                (answer, _) => prop_assert!(false, "a batch answered {answer:?}"),
            }
        }
        Step::Replace { session, messages: drafts, active_only } => {
            let id = name(*session);
            let done = db.replace_messages(id.as_str(), messages(drafts), *active_only);
            if let Some(known) = model.sessions.get_mut(&id) {
                prop_assert!(done.is_ok(), "{:?}", done);
                known.rows.retain(|row| *active_only && !row.active);
                let stored = newest(db, &id, drafts.len())?;
                known.rows.extend(drafts.iter().zip(stored).map(|(draft, stored)| draft.row(stored)));
            } else {
                prop_assert_eq!(done.is_ok(), drafts.is_empty());
            }
        }
        Step::Compact { session, messages: drafts } => {
            let id = name(*session);
            let done = db.archive_and_compact(id.as_str(), messages(drafts));
            if let Some(known) = model.sessions.get_mut(&id) {
                prop_assert_eq!(read(done)?, drafts.len() as i64);
                for row in known.rows.iter_mut().filter(|row| row.active) {
                    (row.active, row.compacted) = (false, true);
                }
                let stored = newest(db, &id, drafts.len())?;
                known.rows.extend(drafts.iter().zip(stored).map(|(draft, stored)| draft.row(stored)));
            } else {
                prop_assert_eq!(done.is_ok(), drafts.is_empty());
            }
        }
        Step::Clear { session } => {
            let id = name(*session);
            read(db.clear_messages(id.as_str()))?;
            if let Some(known) = model.sessions.get_mut(&id) {
                known.rows.clear();
            }
        }
        Step::Rewind { session, to } => rewind(db, model, &name(*session), *to)?,
        Step::Restore { session, since } => {
            let id = name(*session);
            let Some(known) = model.sessions.get_mut(&id) else {
                prop_assert_eq!(read(db.restore_rewound(id.as_str(), 0))?, 0);
                return Ok(());
            };
            let since = known.pick(*since).map_or(0, |row| row.id);
            let restored = read(db.restore_rewound(id.as_str(), since))?;
            let rewound = known.rows.iter_mut().filter(|row| row.id >= since && !row.active && !row.compacted);
            prop_assert_eq!(restored, rewound.map(|row| row.active = true).count() as i64);
        }
        Step::End { session, by_compression } => {
            let id = name(*session);
            let reason = if *by_compression { "compression" } else { "done" };
            read(db.end_session(id.as_str(), reason))?;
            if let Some(known) = model.sessions.get_mut(&id) {
                known.end_reason.get_or_insert(reason);
            }
        }
        Step::Reopen { session } => {
            let id = name(*session);
            read(db.reopen_session(id.as_str()))?;
            if let Some(known) = model.sessions.get_mut(&id) {
                known.end_reason = None;
            }
        }
        Step::Title { session, title } => {
            let (id, title) = (name(*session), title.map(model::title));
            match (db.set_session_title(id.as_str(), title.as_deref()), model.set_title(&id, title.as_deref())) {
                (Ok(done), Some(wanted)) => prop_assert_eq!(done, wanted),
                (Err(Error::TitleInUse { .. }), None) => {}
                (answer, wanted) => prop_assert!(false, "a title answered {answer:?}, not {wanted:?}"),
            }
        }
        Step::AutoTitle { session, title } => {
            let (id, title) = (name(*session), model::title(*title));
            let done = read(db.set_auto_title_if_empty(id.as_str(), Some(title.as_str())))?;
            prop_assert_eq!(done, model.set_auto_title(&id, &title));
        }
        Step::Archive { session, archived } => {
            let id = name(*session);
            let done = read(db.set_session_archived(id.as_str(), *archived))?;
            prop_assert_eq!(done, model.archive(&id, *archived));
        }
        Step::Delete { session } => {
            let id = name(*session);
            prop_assert_eq!(read(db.delete_session(&id, None))?, model.delete(&id));
        }
        Step::DeleteIfEmpty { session } => {
            let id = name(*session);
            prop_assert_eq!(read(db.delete_session_if_empty(&id, None))?, model.delete_if_empty(&id));
        }
        Step::OpenAgain => {}
    }
    Ok(())
}

fn rewind(db: &SessionDb, model: &mut Model, id: &str, to: u8) -> Result<(), TestCaseError> {
    let Some(known) = model.sessions.get_mut(id) else {
        prop_assert!(db.rewind_to_message(id, 1).is_err());
        return Ok(());
    };
    let Some((target, role)) = known.pick(to).map(|row| (row.id, row.role)) else { return Ok(()) };
    let answer = db.rewind_to_message(id, target);
    if role != "user" {
        prop_assert!(answer.is_err(), "only to what the user said");
        return Ok(());
    }
    let rewound = read(answer)?;
    let gone = known.rows.iter_mut().filter(|row| row.id >= target && row.active);
    prop_assert_eq!(rewound.rewound_count, gone.map(|row| row.active = false).count() as i64);
    prop_assert_eq!(rewound.new_head_id, known.rows.iter().rfind(|row| row.active).map(|row| row.id));
    Ok(())
}

/// Everything that can be read of the store is what the model says.
fn compare(db: &SessionDb, model: &Model) -> Result<(), TestCaseError> {
    for id in (0..SESSIONS).map(name) {
        let stored = read(db.session(id.as_str()))?;
        let Some(known) = model.sessions.get(&id) else {
            prop_assert!(stored.is_none());
            continue;
        };
        let stored = stored.ok_or_else(|| TestCaseError::fail(format!("{id} is gone")))?;
        let record = stored.record();
        let counters = (record.integer("message_count"), record.integer("tool_call_count"));
        prop_assert_eq!(
            counters,
            (Some(known.active().count() as i64), Some(known.active().map(|row| row.calls as i64).sum()))
        );
        prop_assert_eq!(record.text("title"), known.title.as_deref());
        prop_assert_eq!(record.text("end_reason"), known.end_reason);
        prop_assert_eq!(record.text("parent_session_id"), known.parent.as_deref());
        prop_assert_eq!(record.get("archived"), Some(&Value::Integer(known.archived.into())));
        for include_inactive in [false, true] {
            let query = MessageQuery { include_inactive, ..MessageQuery::default() };
            let rows = read(db.messages(id.as_str(), &query))?;
            let rows: Vec<_> = rows.iter().map(|row| (row.id(), row.role().to_owned(), row.content())).collect();
            let wanted = known.rows.iter().filter(|row| row.active || include_inactive);
            let wanted: Vec<_> = wanted.map(|row| (row.id, row.role.to_owned(), row.content.clone())).collect();
            prop_assert_eq!(rows, wanted);
        }
        prop_assert_eq!(read(db.message_count(Some(&id)))?, known.rows.len() as i64);
        prop_assert_eq!(read(db.has_archived_messages(id.as_str()))?, known.rows.iter().any(|row| !row.active));
    }
    let every = SessionQuery { limit: -1, include_children: true, include_archived: true, ..SessionQuery::default() };
    let mut listed: Vec<_> = read(db.list_sessions(&every))?.iter().map(|row| row.id().to_owned()).collect();
    listed.sort();
    prop_assert_eq!(listed, model.sessions.keys().cloned().collect::<Vec<_>>());
    Ok(())
}

/// What is found is what is there.
fn compare_search(db: &SessionDb, model: &Model, word: usize) -> Result<(), TestCaseError> {
    for include_inactive in [false, true] {
        let options = SearchOptions { limit: -1, include_inactive, ..SearchOptions::default() };
        let mut found: Vec<_> = read(db.search_messages(WORDS[word], &options))?.iter().map(|hit| hit.id).collect();
        found.sort_unstable();
        let rows = model.sessions.values().flat_map(|session| &session.rows);
        let visible = rows.filter(|row| row.active || row.compacted || include_inactive);
        let mut wanted: Vec<_> = visible.filter(|row| row.words.contains(&word)).map(|row| row.id).collect();
        wanted.sort_unstable();
        prop_assert_eq!(found, wanted, "{}", WORDS[word]);
    }
    Ok(())
}

fn live(open: impl Fn() -> SessionDb, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut db = open();
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        if matches!(step, Step::OpenAgain) {
            read(db.close())?;
            db = open();
        }
        take(&db, &mut model, step)?;
        compare(&db, &model)?;
        if number % 8 == 0 {
            compare_search(&db, &model, number / 8 % WORDS.len())?;
        }
    }
    for word in 0..WORDS.len() {
        compare_search(&db, &model, word)?;
    }
    Ok(())
}

/// So many lives of so many steps each.
fn lives(count: u32, steps: usize, live: impl Fn(&[Step]) -> Result<(), TestCaseError>) {
    let config = Config { cases: count, max_shrink_iters: 2000, failure_persistence: None, ..Config::default() };
    proptest!(config, |(steps in prop::collection::vec(step(), steps))| live(&steps)?);
}

#[test]
fn ten_thousand_random_operations_leave_a_file_as_the_model_says() {
    lives(40, 250, |steps| {
        let folder = tempfile::tempdir().expect("a folder");
        live(|| SessionDb::open(folder.path().join("state.db")).expect("opens"), steps)
    });
}

#[cfg(feature = "postgres")]
#[test]
fn random_operations_leave_a_server_as_the_model_says() {
    let Some(shared) = hermes_state_testkit::shared() else { return };
    lives(8, 250, |steps| {
        let space = shared.fresh();
        live(|| SessionDb::open(space.url()).expect("opens"), steps)
    });
}
