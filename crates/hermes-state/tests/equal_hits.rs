//! A search finds the same on a server as in a file.
#![cfg(feature = "postgres")]

use std::collections::BTreeSet;

use hermes_state::{Content, NewMessage, NewSession, SearchOptions, SessionDb, ToolCalls};
use serde_json::Value as Json;

const SAMPLES: [&str; 7] = [
    include_str!("../../hermes-state-cli/samples/english.jsonl"),
    include_str!("../../hermes-state-cli/samples/german.jsonl"),
    include_str!("../../hermes-state-cli/samples/spanish.jsonl"),
    include_str!("../../hermes-state-cli/samples/french.jsonl"),
    include_str!("../../hermes-state-cli/samples/chinese.jsonl"),
    include_str!("../../hermes-state-cli/samples/japanese.jsonl"),
    include_str!("../../hermes-state-cli/samples/korean.jsonl"),
];

/// The sample conversations and, to reach what they do not have, some odd messages.
fn fill(db: &SessionDb) -> Vec<String> {
    let mut texts = Vec::new();
    let conversations = SAMPLES.iter().flat_map(|file| file.lines());
    for (number, line) in conversations.enumerate() {
        let conversation: Json = serde_json::from_str(line).expect("a sample is JSON");
        let session = format!("s{number}");
        db.create_session(NewSession::new(session.as_str(), conversation["source"].as_str())).expect("creates");
        let messages = conversation["messages"].as_array().expect("messages").iter().map(|fields| {
            let mut message = match &fields["content"] {
                Json::Null => NewMessage::new(fields["role"].as_str(), Content::None),
                Json::String(text) => {
                    texts.push(text.clone());
                    NewMessage::new(fields["role"].as_str(), text.as_str())
                }
                parts => NewMessage::new(fields["role"].as_str(), parts.clone()),
            };
            if let Some(calls) = fields.get("tool_calls") {
                message = message.tool_calls(ToolCalls::from(calls.clone()));
            }
            message.tool_name(fields["tool_name"].as_str())
        });
        db.append_messages(session.as_str(), messages.collect()).expect("appends");
    }
    let odd = [
        "café CAFÉ Cafe\u{301} naïve",
        "a\0b after nul",
        "{\"json\": [1, 2.5], \"key\": null}",
        "🙂 smile",
        "x_y a-b a.b",
        "오류코드q7확인 부탁",
        "redis缓存redis",
        "東京 京都",
        "人々",
        "\"quoted\" 'single'",
        "100% of 5$ #1 @home",
    ];
    db.append_messages("s0", odd.iter().map(|text| NewMessage::new("user", *text)).collect()).expect("appends");
    db.append_messages("s1", vec![NewMessage::new("user", "long tail ".repeat(9000) + "final")]).expect("appends");
    texts.extend(odd.map(str::to_owned));
    texts
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("small")
    }

    fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }

    /// A stretch of a text, cut at characters.
    fn stretch(&mut self, text: &str, longest: usize) -> String {
        let characters: Vec<char> = text.chars().collect();
        let length = 1 + self.below(longest);
        let start = self.below(characters.len().saturating_sub(length).max(1));
        characters.iter().skip(start).take(length).collect()
    }

    fn word(&mut self, texts: &[String]) -> String {
        let text = &texts[self.below(texts.len())];
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() { "the".to_owned() } else { self.of(&words).to_owned() }
    }

    fn query(&mut self, texts: &[String]) -> String {
        let text = texts[self.below(texts.len())].clone();
        let (one, other) = (self.word(texts), self.word(texts));
        match self.below(14) {
            0 | 1 => one,
            2 => format!("{one} {other}"),
            3 => format!("{one} OR {other}"),
            4 => format!("{one} NOT {other}"),
            5 => format!("{one} AND {other}"),
            6 => {
                let words: Vec<&str> = text.split_whitespace().collect();
                let start = self.below(words.len().max(1));
                format!("\"{}\"", words.iter().skip(start).take(3).copied().collect::<Vec<_>>().join(" "))
            }
            7 => format!("{}*", one.chars().take(3).collect::<String>()),
            8 => self.stretch(&text, 6),
            9 => self.stretch(&text, 3),
            10 => one.to_uppercase(),
            11 => format!("{} {}", self.stretch(&text, 4), other),
            12 => format!("{} OR {one}", self.stretch(&text, 4)),
            _ => format!("{} NOT {}", self.stretch(&text, 5), self.stretch(&text, 2)),
        }
    }
}

fn hits(db: &SessionDb, query: &str, role: Option<&str>) -> BTreeSet<i64> {
    let options = SearchOptions {
        limit: -1,
        role_filter: role.map(str::to_owned).into_iter().collect(),
        ..SearchOptions::default()
    };
    let results = db.search_messages(query, &options).expect("searches");
    assert!(!results.degraded, "{query:?}");
    let ids: Vec<i64> = results.iter().map(|hit| hit.id).collect();
    let set: BTreeSet<i64> = ids.iter().copied().collect();
    assert_eq!(set.len(), ids.len(), "{query:?}: each hit once");
    set
}

#[test]
fn a_thousand_random_queries_find_the_same_on_both_engines() {
    let Some(shared) = hermes_state_testkit::shared() else { return };
    let space = shared.fresh();
    let folder = tempfile::tempdir().expect("a folder");
    let file = SessionDb::open(folder.path().join("state.db")).expect("opens");
    let server = SessionDb::open(space.url()).expect("opens");
    let texts = fill(&file);
    fill(&server);
    let mut random = Random(0x5eed);
    let mut found = 0;
    let mut different = Vec::new();
    for _ in 0..1000 {
        let query = random.query(&texts);
        let role = [None, None, None, Some("user"), Some("assistant"), Some("tool")][random.below(6)];
        let (expected, got) = (hits(&file, &query, role), hits(&server, &query, role));
        found += usize::from(!expected.is_empty());
        if expected != got {
            let only = |one: &BTreeSet<i64>, other: &BTreeSet<i64>| one.difference(other).copied().collect::<Vec<_>>();
            different.push(format!(
                "{query:?} of {role:?}: only in the file {:?}, only on the server {:?}",
                only(&expected, &got),
                only(&got, &expected)
            ));
        }
    }

    assert!(different.is_empty(), "{} of 1000 differ:\n{}", different.len(), different.join("\n"));
    assert!(found > 450, "many queries find something: {found}");
}
