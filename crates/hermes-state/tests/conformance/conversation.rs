//! Transcripts as conversations for replay.

use hermes_state::{
    Content, ConversationMessage, ConversationOptions, NewMessage, NewSession, Record, ResumeOptions, SessionDb,
    ToolCalls, conversation_of_rows, is_background_review_harness,
};
use serde_json::json;

use crate::world::{World, on_each_engine};

const ANCESTORS: ConversationOptions = ConversationOptions {
    include_ancestors: true,
    include_inactive: false,
    repair_alternation: false,
    max_messages: None,
};
const REPAIRED: ConversationOptions = ConversationOptions {
    include_ancestors: false,
    include_inactive: false,
    repair_alternation: true,
    max_messages: None,
};

fn add(db: &SessionDb, session: &str, messages: impl IntoIterator<Item = NewMessage>) {
    db.append_messages(session, messages.into_iter().collect()).unwrap();
}

fn user(text: &str) -> NewMessage {
    NewMessage::new("user", text)
}

fn assistant(text: &str) -> NewMessage {
    NewMessage::new("assistant", text)
}

fn calling(text: &str, ids: &[&str]) -> NewMessage {
    assistant(text).tool_calls(json!(ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>()))
}

fn result(id: &str) -> NewMessage {
    NewMessage::new("tool", "ok").tool_call_id(id)
}

/// Role and content of each message.
fn told(messages: &[ConversationMessage]) -> Vec<String> {
    let line = |message: &ConversationMessage| format!("{}:{}", message.role(), message.text("content").unwrap_or("-"));
    messages.iter().map(line).collect()
}

fn read(db: &SessionDb, options: &ConversationOptions) -> Vec<ConversationMessage> {
    db.conversation("s", options).unwrap()
}

fn every_key_stands_where_it_says_something(db: World) {
    let db = db.with_session();
    let full = |role: &str| {
        NewMessage::new(role, " text ")
            .tool_name("grep")
            .tool_calls(json!([{"id": "k1"}]))
            .tool_call_id("k0")
            .token_count(7)
            .finish_reason("stop")
            .reasoning("because")
            .reasoning_content("")
            .reasoning_details("[1]")
            .codex_reasoning_items("{\"a\": 1}")
            .codex_message_items("broken")
            .platform_message_id("p1")
            .observed(true)
            .effect_disposition("none")
            .api_content(" <memory-context>kept</memory-context> ")
            .timestamp(2.5)
    };
    add(&db, "s", [full("assistant"), full("user"), full("tool"), NewMessage::new("user", "").timestamp(0.0)]);
    let messages = read(&db, &ConversationOptions::default());
    assert_eq!(
        messages[0].to_json(),
        json!({
            "role": "assistant", "content": "text", "api_content": " <memory-context>kept</memory-context> ",
            "timestamp": 2.5, "tool_call_id": "k0", "tool_name": "grep", "effect_disposition": "none",
            "tool_calls": [{"id": "k1"}], "message_id": "p1", "observed": true, "finish_reason": "stop",
            "reasoning": "because", "reasoning_content": "", "reasoning_details": [1],
            "codex_reasoning_items": {"a": 1}, "codex_message_items": null
        })
    );
    let names = |message: &ConversationMessage| message.iter().map(|(name, _)| name).collect::<Vec<_>>();
    let of_all = ["api_content", "timestamp", "tool_call_id", "tool_name", "effect_disposition", "tool_calls"];
    assert_eq!(names(&messages[1]), [&["role", "content"][..], &of_all, &["message_id", "observed"]].concat());
    assert_eq!(messages[2].text("content"), Some(" text "), "only what people and models say is trimmed");
    assert_eq!(messages[3].to_json(), json!({"role": "user", "content": ""}));
}

fn structured_values_stay_the_text_they_are_stored_as(db: World) {
    let db = db.with_session();
    let huge = "[{\"id\": \"k\", \"n\": NaN, \"big\": 123456789012345678901234567890, \"s\": \"\\ud800\"}]";
    add(
        &db,
        "s",
        [
            NewMessage::new("assistant", Content::Bytes(b"AB".to_vec()))
                .tool_calls(ToolCalls::from_text(Some(huge.into()), 1)),
            NewMessage::new("user", json!([{"type": "text", "text": "é"}])),
            NewMessage::new("user", "\0json:{broken"),
            NewMessage::new("user", "\0json:\" text \\ud800\""),
            NewMessage::new("user", "\0json:null"),
            assistant("b").tool_calls(ToolCalls::from_text(Some("null".into()), 1)),
            assistant("c").tool_calls(ToolCalls::from_text(Some("{broken".into()), 1)),
        ],
    );
    let messages = read(&db, &ConversationOptions::default());
    let shown: Vec<String> = messages.iter().map(|message| format!("{:?}", message.get("content").unwrap())).collect();
    assert_eq!(
        shown,
        [
            "Bytes([65, 66])",
            r#"Json("[{\"type\": \"text\", \"text\": \"\\u00e9\"}]")"#,
            r#"Text("\0json:{broken")"#,
            "Text(\"text \u{fffd}\")",
            "Null",
            r#"Text("b")"#,
            r#"Text("c")"#,
        ]
    );
    let calls = |index: usize| format!("{:?}", messages[index].get("tool_calls").unwrap());
    assert_eq!(calls(0), format!("Json({huge:?})"));
    assert_eq!((calls(5).as_str(), calls(6).as_str()), ("Null", "Json(\"[]\")"));
    let number = &messages[0].to_json()["tool_calls"][0];
    assert_eq!((&number["n"], &number["s"]), (&json!(null), &json!("\u{fffd}")));
}

fn recalled_memory_is_cleaned_from_what_was_said(db: World) {
    let db = db.with_session();
    let text = "<memory-context>old</memory-context>\n\n new ";
    add(&db, "s", [user(text), assistant(text), NewMessage::new("tool", text), NewMessage::new("system", text)]);
    assert_eq!(
        told(&read(&db, &ConversationOptions::default())),
        ["user:new".to_owned(), "assistant:new".to_owned(), format!("tool:{text}"), format!("system:{text}"),]
    );
}

fn only_active_messages_unless_asked(db: World) {
    let mut db = db.with_session();
    add(&db, "s", [user("a"), user("b"), user("c")]);
    db.behind_its_back("UPDATE messages SET active = 0, compacted = 1 WHERE id = 2");
    assert_eq!(told(&read(&db, &ConversationOptions::default())), ["user:a", "user:c"]);
    let all = ConversationOptions { include_inactive: true, ..ConversationOptions::default() };
    assert_eq!(told(&read(&db, &all)), ["user:a", "user:b", "user:c"]);
    assert!(db.conversation("none", &all).unwrap().is_empty());
}

fn order_is_that_of_insertion(db: World) {
    let db = db.with_session();
    add(&db, "s", [user("a").timestamp(3.0), calling("b", &["k"]).timestamp(2.0), result("k").timestamp(1.0)]);
    assert_eq!(told(&read(&db, &ConversationOptions::default())), ["user:a", "assistant:b", "tool:ok"]);
}

/// `root` ← `s`, rows interleaved.
fn lineage(db: &World) {
    db.create_session(NewSession::new("root", "cli")).unwrap();
    db.create_session(NewSession::new("s", "cli").parent_session_id("root")).unwrap();
    add(db, "root", [user("first"), assistant("yes"), user("again")]);
    add(
        db,
        "s",
        [user("again").platform_message_id("p"), assistant(""), user("again"), user("first"), assistant("ok")],
    );
    add(db, "root", [user("late")]);
    add(db, "s", [user("again"), user("")]);
}

fn replayed_messages_are_left_out_with_ancestors(db: World) {
    lineage(&db);
    let whole = told(&read(&db, &ANCESTORS));
    assert_eq!(
        whole,
        [
            "user:first",
            "assistant:yes",
            "user:again",
            "assistant:",
            "user:first",
            "assistant:ok",
            "user:late",
            "user:again",
            "user:",
        ]
    );
    let own = told(&read(&db, &ConversationOptions::default()));
    assert_eq!(own, ["user:again", "assistant:", "user:again", "user:first", "assistant:ok", "user:again", "user:"]);
}

fn an_assistant_that_only_calls_tools_has_answered(db: World) {
    let db = db.with_session();
    add(&db, "s", [user("go"), calling("", &["k"]), user("go"), assistant(""), user("go")]);
    assert_eq!(told(&read(&db, &ANCESTORS)), ["user:go", "assistant:", "user:go", "assistant:"]);
}

fn a_resumed_session_is_read_once_for_model_and_people(db: World) {
    lineage(&db);
    let resumed = db.resume_conversations("s", &ResumeOptions::default()).unwrap();
    assert_eq!(resumed.model_history, read(&db, &REPAIRED));
    assert_eq!(resumed.display_history, read(&db, &ANCESTORS));
    assert_eq!(
        told(&db.ancestor_display_prefix("s").unwrap()),
        ["user:first", "assistant:yes", "user:again", "user:late"]
    );
    assert!(db.ancestor_display_prefix("root").unwrap().is_empty());
    let nobody = db.resume_conversations("none", &ResumeOptions::default()).unwrap();
    assert!(nobody.model_history.is_empty() && nobody.display_history.is_empty());
}

fn the_harness_of_a_background_review_goes_with_its_answer(db: World) {
    let db = db.with_session();
    let skills = " \u{1c}Review the conversation above and update the skill library, now";
    add(
        &db,
        "s",
        [
            user("hi"),
            NewMessage::new("system", skills),
            user("Review the conversation above and consider saving to memory"),
            assistant("Nothing to save."),
            assistant("kept"),
            user(skills),
            NewMessage::new("tool", "kept"),
            assistant("kept too"),
            user("review the conversation above and update the skill library"),
            NewMessage::new("tool", skills),
            NewMessage::new("user", json!([{"type": "text", "text": skills}])),
        ],
    );
    assert_eq!(
        told(&read(&db, &ConversationOptions::default()))[..5],
        [
            "user:hi",
            "assistant:kept",
            "tool:kept",
            "assistant:kept too",
            "user:review the conversation above and update the skill library",
        ]
    );
    assert_eq!(read(&db, &ConversationOptions::default()).len(), 7);
}

fn assistants_in_a_row_become_one(db: World) {
    let db = db.with_session();
    let calls = "[{\"id\": \"k2\", \"n\": NaN}]";
    add(
        &db,
        "s",
        [
            calling("one ", &["k1"]).finish_reason("stop").timestamp(1.0).api_content("one"),
            assistant(" two").tool_calls(ToolCalls::from_text(Some(calls.into()), 1)).timestamp(2.0).reasoning("no"),
            assistant("").reasoning_content("thought"),
            result("k2"),
            result("k1"),
            result("k1"),
            user("next"),
            assistant("draft").finish_reason("verify_hook_continue"),
            assistant("final").finish_reason("incomplete"),
            assistant("goes on"),
        ],
    );
    let messages = read(&db, &REPAIRED);
    assert_eq!(
        told(&messages),
        [
            "assistant:one\ntwo",
            "tool:ok",
            "tool:ok",
            "user:next",
            "assistant:draft",
            "assistant:final",
            "assistant:goes on",
        ]
    );
    assert_eq!(
        format!("{:?}", messages[0]),
        concat!(
            r#"ConversationMessage([("role", Text("assistant")), ("content", Text("one\ntwo")), ("api_content", Text("one")), "#,
            r#"("timestamp", Real(1.0)), ("tool_calls", Json("[{\"id\": \"k1\"}, {\"id\": \"k2\", \"n\": NaN}]")), "#,
            r#"("finish_reason", Text("stop")), ("reasoning_content", Text("thought"))])"#,
        )
    );
}

fn a_verified_draft_is_replaced(db: World) {
    let db = db.with_session();
    add(&db, "s", [assistant("draft").finish_reason("verification_required"), assistant("final"), assistant("more")]);
    assert_eq!(told(&read(&db, &REPAIRED)), ["assistant:final\nmore"]);
    assert_eq!(read(&db, &ConversationOptions::default()).len(), 3, "only on request");
}

fn content_that_is_no_text_is_merged_only_into_nothing(db: World) {
    let db = db.with_session();
    let parts = json!([{"type": "text", "text": "x"}]);
    add(
        &db,
        "s",
        [
            assistant(""),
            NewMessage::new("assistant", parts.clone()),
            assistant("lost"),
            user("a"),
            NewMessage::new("user", parts.clone()),
            user("b"),
        ],
    );
    let messages = read(&db, &REPAIRED);
    let contents: Vec<_> = messages.iter().map(|message| message.to_json()["content"].clone()).collect();
    assert_eq!(contents, [parts.clone(), json!("a"), parts, json!("b")]);
}

fn results_that_answer_no_open_call_go(db: World) {
    let db = db.with_session();
    add(
        &db,
        "s",
        [
            result("k0"),
            assistant("x").tool_calls(json!([{"id": "k1", "call_id": "c1"}, 5, {"id": ""}])),
            result("c1"),
            NewMessage::new("system", "note"),
            result("k1"),
            result("k1"),
            NewMessage::new("tool", "no id"),
            calling("y", &["k2"]),
            user("stop"),
            result("k2"),
        ],
    );
    assert_eq!(
        told(&read(&db, &REPAIRED)),
        ["assistant:x", "tool:ok", "system:note", "tool:ok", "assistant:y", "user:stop",]
    );
}

fn users_in_a_row_become_one(db: World) {
    let db = db.with_session();
    add(
        &db,
        "s",
        [
            user("a").api_content("A").platform_message_id("p1").timestamp(1.0),
            user("").timestamp(2.0),
            user("b").platform_message_id("p2").observed(true),
            assistant("c"),
            user("d").api_content("D").timestamp(4.0),
        ],
    );
    let messages: Vec<_> = read(&db, &REPAIRED).iter().map(ConversationMessage::to_json).collect();
    assert_eq!(messages[0], json!({"role": "user", "content": "a\n\nb", "timestamp": 1.0, "message_id": "p1"}));
    assert_eq!(messages[2], json!({"role": "user", "content": "d", "api_content": "D", "timestamp": 4.0}));
}

/// A session that grew old must not be loaded whole by whoever resumes it.
fn a_huge_session_is_resumed_with_its_newest_part_and_says_what_is_missing(db: World) {
    let db = db.with_session();
    let messages: Vec<_> = (0..10_003).map(|number| user(&format!("m{number}")).timestamp(f64::from(number))).collect();
    messages.chunks(500).for_each(|part| add(&db, "s", part.to_vec()));
    let resumed = db.resume_conversations("s", &ResumeOptions::default()).unwrap();
    assert_eq!((resumed.omitted, resumed.display_history.len()), (3, 10_000));
    assert_eq!(resumed.display_history[0].text("content"), Some("m3"));
    assert!(resumed.model_history[0].text("content").unwrap().starts_with("m3\n\nm4\n\n"));
    let with = |max_messages| db.resume_conversations("s", &ResumeOptions { max_messages }).unwrap();
    let (exactly, all, none) = (with(Some(10_003)), with(None), with(Some(0)));
    assert_eq!((exactly.omitted, exactly.display_history.len()), (0, 10_003));
    assert_eq!((all.omitted, all.display_history.len()), (0, 10_003));
    assert_eq!((none.omitted, none.display_history.len(), none.model_history.len()), (10_003, 0, 0));
}

fn the_newest_part_is_counted_in_stored_messages_of_those_that_would_be_read(db: World) {
    lineage(&db);
    let newest = |max, options: ConversationOptions| {
        told(&read(&db, &ConversationOptions { max_messages: Some(max), ..options }))
    };
    assert_eq!(newest(2, ConversationOptions::default()), ["user:again", "user:"]);
    assert_eq!(newest(3, ANCESTORS), ["user:late", "user:again", "user:"]);
    assert_eq!(newest(2, REPAIRED), ["user:again"]);
    assert_eq!(newest(100, ANCESTORS), told(&read(&db, &ANCESTORS)));
    assert!(newest(0, ANCESTORS).is_empty());
    let mut db = db;
    db.behind_its_back("UPDATE messages SET active = 0 WHERE content = 'again'");
    let newest = ConversationOptions { max_messages: Some(2), ..ConversationOptions::default() };
    assert_eq!(told(&read(&db, &newest)), ["assistant:ok", "user:"], "inactive rows take no places");
}

fn rows_that_were_read_elsewhere_make_the_same_conversation(db: World) {
    lineage(&db);
    let mut rows: Vec<Record> = ["root", "s"]
        .into_iter()
        .flat_map(|id| db.messages(id, &Default::default()).unwrap())
        .map(|message| message.record().clone())
        .collect();
    rows.sort_by_key(|row| row.integer("id"));
    assert_eq!(conversation_of_rows(&rows, &ANCESTORS), read(&db, &ANCESTORS));
    let own: Vec<Record> = rows.into_iter().filter(|row| row.text("session_id") == Some("s")).collect();
    assert_eq!(conversation_of_rows(&own, &REPAIRED), read(&db, &REPAIRED));
    assert!(is_background_review_harness(
        "system",
        "\u{2003}Review the conversation above and consider saving to memory"
    ));
    assert!(!is_background_review_harness("assistant", "Review the conversation above and consider saving to memory"));
}

on_each_engine! {
    every_key_stands_where_it_says_something
    structured_values_stay_the_text_they_are_stored_as
    recalled_memory_is_cleaned_from_what_was_said
    only_active_messages_unless_asked
    order_is_that_of_insertion
    replayed_messages_are_left_out_with_ancestors
    an_assistant_that_only_calls_tools_has_answered
    a_resumed_session_is_read_once_for_model_and_people
    the_harness_of_a_background_review_goes_with_its_answer
    assistants_in_a_row_become_one
    a_verified_draft_is_replaced
    content_that_is_no_text_is_merged_only_into_nothing
    results_that_answer_no_open_call_go
    users_in_a_row_become_one
    a_huge_session_is_resumed_with_its_newest_part_and_says_what_is_missing
    the_newest_part_is_counted_in_stored_messages_of_those_that_would_be_read
    rows_that_were_read_elsewhere_make_the_same_conversation
}
