//! `record`: what is acknowledged is stored, whatever else is in the stream or happens to the process.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value as Json, json};

use crate::world::{Outcome, World, line};

#[test]
fn a_conversation_that_was_piped_in_is_found() {
    let world = World::new();
    let input = [line("user", "Where is the harbour?"), line("assistant", "Behind the old lighthouse.")].concat();
    let recorded = world.run_with_input("record --session s1 --source telegram", input).expect_code(0);
    assert_eq!(recorded.out, "1 1\n2 2\n");
    assert_eq!(recorded.err, "");

    let found = world.run("search lighthouse").expect_code(0);
    assert!(found.out.contains("s1  telegram"), "{found:?}");
    assert!(found.out.contains("assistant: Behind the old >>>lighthouse<<<."), "{found:?}");
    assert!(found.out.contains("user: Where is the harbour?"), "the context is shown: {found:?}");
    assert!(!found.out.contains('\u{1b}'), "no colours in a pipe: {found:?}");
    assert!(world.run("search lighthouse --color always").out.contains("\u{1b}["));
}

#[test]
fn chinese_is_found_without_spaces() {
    let world = World::new();
    world.say("s1", &["下周去杭州西湖拍照", "灵隐寺门票多少钱"]);
    let found = world.run("search 西湖 --json").expect_code(0).json();
    assert_eq!(found["hits"].as_array().unwrap().len(), 1);
    assert_eq!(found["hits"][0]["message_id"], 1);
}

#[test]
fn every_field_of_a_line_is_kept() {
    let world = World::new();
    let message = json!({
        "role": "assistant", "content": [{"type": "text", "text": "é\u{0}"}], "tool_calls": [{"id": "k1"}],
        "token_count": 7, "finish_reason": "stop", "reasoning": "because", "timestamp": "2026-07-04T10:15:00.5Z",
    });
    let result = json!({"role": "tool", "content": null, "tool_name": "look", "tool_call_id": "k1"});
    world.run_with_input("record --session s1", format!("{message}\n{result}")).expect_code(0);
    let shown = world.run("show s1 --json").expect_code(0).json();
    for (field, value) in message.as_object().unwrap() {
        assert_eq!(&shown["messages"][0][field], value, "{field}");
    }
    for (field, value) in result.as_object().unwrap() {
        assert_eq!(&shown["messages"][1][field], value, "{field}");
    }
}

#[test]
fn a_stream_that_is_sent_again_is_stored_once() {
    let world = World::new();
    let keyed =
        |n: u32, text: &str| json!({"role": "user", "content": text, "client_key": format!("k{n}")}).to_string();
    let input = [keyed(1, "one"), keyed(2, "two")].join("\n");
    assert_eq!(world.run_with_input("record --session s1", input.clone()).expect_code(0).out, "1 1\n2 2\n");
    let more = [input, keyed(3, "three"), keyed(1, "something else")].join("\n");
    let again = world.run_with_input("record --session s1", more).expect_code(1);
    assert_eq!(again.out, "1 1\n2 2\n3 3\n");
    assert!(again.err.contains("line 4") && again.err.contains("client key 'k1'"), "{again:?}");
    let shown = world.run("show s1 --json").expect_code(0).json();
    assert_eq!(shown["messages"].as_array().unwrap().len(), 3);
}

#[test]
fn bad_lines_are_named_and_nothing_else_is_lost() {
    let world = World::new();
    let mut input = line("user", "first").into_bytes();
    input.extend(b"not json\n");
    input.extend(b"[1]\n");
    input.extend(b"\n  \r\n");
    input.extend(b"{\"role\":\"user\",\"content\":\"\xff\"}\n");
    input.extend(b"{\"content\":\"no role\"}\n");
    input.extend(b"{\"role\":\"user\",\"contents\":\"x\"}\r\n");
    // A line of several megabytes, and one without an end.
    let long = "harbour ".repeat(600_000);
    input.extend(line("user", &long).bytes());
    input.extend(line("assistant", "last").trim_end().bytes());

    let recorded = world.run_with_input("record --session s1", input).expect_code(1);
    assert_eq!(recorded.out, "1 1\n9 2\n10 3\n");
    let named: Vec<&str> = recorded.err.lines().filter_map(|line| line.split(':').nth(1)).take(6).collect();
    assert_eq!(
        named,
        [" line 2", " line 3", " line 6", " line 7", " line 8", " 5 of 8 lines were not stored; each is named above"]
    );
    assert_eq!(world.contents("s1"), [json!("first"), json!(long), json!("last")]);
}

#[test]
fn with_json_each_acknowledgement_and_each_error_is_an_object() {
    let world = World::new();
    let input = [line("user", "one"), "{\n".to_owned()].concat();
    let recorded = world.run_with_input("record --session s1 --json", input).expect_code(1);
    assert_eq!(serde_json::from_str::<Json>(&recorded.out).unwrap(), json!({"line": 1, "message_id": 1}));
    let errors: Vec<Json> = recorded.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(errors[0]["error"]["line"], 2);
    assert_eq!(errors[0]["error"]["kind"], "refused");
    assert_eq!(errors.len(), 2);
}

#[test]
fn a_line_is_acknowledged_before_the_next_one_comes() {
    let world = World::new();
    let (mut child, mut stdin) = world.start("record --session s1");
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 1..=3 {
        stdin.write_all(line("user", "again").as_bytes()).unwrap();
        assert_eq!(told.next().unwrap().unwrap(), format!("{number} {number}"));
        assert_eq!(world.contents("s1").len(), number, "and stored, for other processes to see");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn lines_are_stored_although_nobody_reads_the_acknowledgements() {
    let world = World::new();
    let (mut child, mut stdin) = world.start("record --session s1");
    drop(child.stdout.take());
    for number in 0..50 {
        stdin.write_all(line("user", &format!("message {number}")).as_bytes()).unwrap();
    }
    drop(stdin);
    Outcome::of(child.wait_with_output().unwrap()).expect_code(0);
    assert_eq!(world.contents("s1").len(), 50);
}

#[test]
fn what_was_acknowledged_survives_sudden_death() {
    let world = World::new();
    for round in 0..3 {
        let session = format!("s{round}");
        let (mut child, mut stdin) = world.start(&format!("record --session {session}"));
        let feeding = std::thread::spawn(move || {
            // Ends with the pipe, when the reader dies.
            (0..)
                .map(|number: u32| line("user", &format!("message {number}")))
                .all(|line| stdin.write_all(line.as_bytes()).is_ok())
        });
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged: Vec<String> = (0..100 + round * 37).map(|_| told.next().unwrap().unwrap()).collect();
        child.kill().unwrap();
        acknowledged.extend(told.map_while(Result::ok).filter(|line| line.contains(' ')));
        child.wait().unwrap();
        feeding.join().unwrap();

        let shown = world.run(&format!("show {session} --json")).expect_code(0).json();
        let messages = shown["messages"].as_array().unwrap();
        let stored: HashSet<String> =
            messages.iter().map(|message| format!("{} {}", message["content"], message["id"])).collect();
        for told in &acknowledged {
            let (line, id) = told.split_once(' ').unwrap();
            let number = line.parse::<u32>().unwrap() - 1;
            assert!(stored.contains(&format!("\"message {number}\" {id}")), "line {line} was acknowledged and is lost");
        }
        assert!(messages.len() - acknowledged.len() <= 1, "at most the write under way was not acknowledged");
        assert_eq!(shown["session"]["message_count"], messages.len());
    }
}
