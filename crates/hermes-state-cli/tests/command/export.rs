//! `export` and `import`: what leaves a store comes back the same, in little memory, and bad lines change nothing.

use std::io::{BufReader, Read as _};
use std::process::Stdio;

use hermes_state::{NewMessage, NewSession, SessionDb};
use serde_json::{Value as Json, json};

use crate::world::World;

/// The session of C12, as a line for `record` each.
fn awkward() -> String {
    let messages = [
        json!({"role": "user", "content": "a\u{0}b porcupine", "timestamp": 1_783_160_100.123_456}),
        json!({"role": "user", "content": "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}"}),
        json!({"role": "tool", "content": "x".repeat(2_000_000)}),
        json!({"role": "user", "content": ""}),
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "k", "arguments": {"straße": ["é"]}}]}),
        json!({"role": "user", "content": [{"type": "text", "text": "é"}, {"type": "image_url", "url": "x"}]}),
    ];
    let mut lines: Vec<String> = messages.iter().map(Json::to_string).collect();
    lines.push(r#"{"role": "user", "content": "half \ud83d"}"#.to_owned());
    lines.join("\n")
}

#[test]
fn an_export_comes_back_through_a_pipe() {
    let (world, other) = (World::new(), World::new());
    world.run_with_input("record --session c12", awkward()).expect_code(0);
    world.say("parent", &["hello"]);
    SessionDb::open(world.store())
        .unwrap()
        .create_session(NewSession::new("child", "cli").parent_session_id("parent"))
        .unwrap();
    let first = world.run("export c12 chi").expect_code(0);
    assert_eq!((first.out.lines().count(), first.err.as_str()), (2, ""));
    assert!(first.out.is_ascii(), "every shell and every reader gets it through");

    let dry = other.run_with_input("import --dry-run --json", &first.out).expect_code(0).json();
    assert!(!other.store().exists(), "a dry run makes nothing");
    let report = other.run_with_input("import --json", &first.out).expect_code(0);
    assert_eq!(report.err.lines().count(), 1, "one warning: {report:?}");
    let warning: Json = serde_json::from_str(&report.err).unwrap();
    assert_eq!(warning["warning"]["session"], "child", "{warning:#}");
    let report = report.json();
    assert_eq!((&report["imported_ids"], &report["detached_ids"]), (&json!(["c12", "child"]), &json!(["child"])));
    assert_eq!(report["imported_ids"], dry["imported_ids"]);

    let second = other.run("export c12 child").expect_code(0);
    let expected = first.out.replace(r#""parent_session_id": "parent""#, r#""parent_session_id": null"#);
    assert!(second.out == expected, "the second export is the first, but for the parent that is not there");
    let again = other.run_with_input("import", &second.out).expect_code(0);
    assert_eq!(again.out, "2 skipped, being there: c12, child\n");
    assert_eq!(other.run("search porcupine --json").json()["hits"].as_array().unwrap().len(), 1);
    assert_eq!(other.contents("c12")[3..5], [json!(""), Json::Null]);
}

#[test]
fn all_or_a_conversation_or_some_are_exported() {
    let world = World::new();
    world.run_with_input("record --session a --source web", r#"{"role": "user", "content": "x"}"#).expect_code(0);
    world.say("b1", &["one"]);
    {
        let db = SessionDb::open(world.store()).unwrap();
        db.end_session("b1", "compression").unwrap();
        db.create_session(NewSession::new("b2", "cli").parent_session_id("b1")).unwrap();
        db.append_message("b2", NewMessage::new("user", "two")).unwrap();
    }
    let ids = |words: &str| {
        let exported = world.run(words).expect_code(0);
        let lines = exported.out.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        lines.map(|line| line["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("export --all"), ["b2", "b1", "a"]);
    assert_eq!(ids("export --all --source web --json"), ["a"]);
    assert_eq!(ids("export b1 a"), ["b1", "a"]);
    let whole: Json = serde_json::from_str(&world.run("export --lineage b1").expect_code(0).out).unwrap();
    assert_eq!((&whole["id"], &whole["lineage_session_ids"]), (&json!("b2"), &json!(["b1", "b2"])));
    assert_eq!(whole["messages"].as_array().unwrap().len(), 2);

    let file = world.folder().join("all.jsonl");
    let words = format!("export --all --output {}", file.display());
    assert_eq!(world.run(&words).expect_code(0).out, "");
    let kept = std::fs::metadata(&file).unwrap().len();
    assert_eq!(kept, world.run("export --all").out.len() as u64);
    let refused = world.run(&format!("{words} --json")).expect_code(1).error();
    assert!(refused["message"].as_str().unwrap().ends_with("all.jsonl is there already"), "{refused}");
    let other = World::new();
    let imported = other.run(&format!("import {}", file.display())).expect_code(0);
    assert_eq!(imported.out, "3 imported: b2, b1, a\n");
    assert_eq!(
        other.run("export b2").out.matches("\"parent_session_id\": \"b1\"").count(),
        1,
        "a parent may come later"
    );

    for (words, code) in [("export", 2), ("export a --all", 2), ("export a --source web", 2), ("export nobody", 1)] {
        world.run(words).expect_code(code);
    }
    let empty = World::new();
    assert_eq!(empty.run("export --all").expect_code(0).out, "");
    assert_eq!(empty.run("export s --json").expect_code(1).err.matches("not-found").count(), 1);
    assert!(!empty.folder().exists());
}

#[test]
fn bad_lines_are_named_and_nothing_comes_in() {
    let world = World::new();
    let input = "{\"id\": \"good\"}\n\nno json\n{\"id\": \"s\", \"source\": 5}\n{\"id\": \"good\"}\n";
    let refused = world.run_with_input("import", input).expect_code(1);
    for line in [
        "line 3: session must be an object",
        "line 4: session s: source must be a string",
        "line 5: session good: duplicate session id",
        "nothing was imported: something is wrong with 3 of the sessions",
    ] {
        assert!(refused.err.contains(line), "{line}: {refused:?}");
    }
    assert_eq!(world.run("list --json").json()["sessions"], json!([]));
    let report = world.run_with_input("import --json", input).expect_code(1).json();
    assert_eq!((&report["ok"], &report["errors"][1]["line"]), (&json!(false), &json!(4)));
    let many: String = (0..501).map(|number| format!("{{\"id\": \"s{number}\"}}\n")).collect();
    let refused = world.run_with_input("import --json", many).expect_code(1).error();
    assert_eq!((&refused["line"], &refused["message"]), (&json!(501), &json!("more than 500 sessions at once")));
    world.run_with_input("import", b"\xff\n").expect_code(1);
    world.run("import /nowhere/at/all").expect_code(1);
    assert_eq!(world.run_with_input("import", "").expect_code(0).out, "");
}

/// Slow, because so many messages have to be there first.
#[cfg(target_os = "linux")]
#[test]
fn a_long_session_is_exported_in_little_memory() {
    const MESSAGES: usize = 60_000;
    let world = World::new();
    {
        let db = SessionDb::open(world.store()).unwrap();
        db.create_session(NewSession::new("long", "cli")).unwrap();
        let text = "harbour ".repeat(50);
        for _ in 0..MESSAGES / 1000 {
            db.append_messages("long", vec![NewMessage::new("user", text.as_str()); 1000]).unwrap();
        }
    }
    for words in ["export long", "export --all"] {
        let mut child = world.command(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let status = format!("/proc/{}/status", child.id());
        let (mut peak, mut bytes, mut part) = (0, 0, vec![0; 1 << 16]);
        loop {
            match output.read(&mut part).unwrap() {
                0 => break,
                read => bytes += read,
            }
            // Gone when the process is; what it needed last was no more than what it needed before.
            if let Some(seen) = most_memory(&status) {
                peak = peak.max(seen);
            }
        }
        assert!(child.wait().unwrap().success());
        assert!(bytes > MESSAGES * 700, "{bytes}");
        assert!(peak > 1000 && peak <= 60 * 1024, "{words} took {peak} KB of memory");
    }
}

/// What a process has had of memory at most, in KB.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a file of the system")]
fn most_memory(status: &str) -> Option<u64> {
    let status = std::fs::read_to_string(status).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok())
}
